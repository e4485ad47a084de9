#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "models/spec.h"
#include "plan/model.h"
#include "plan/task.h"

namespace macaw::training {

// What a row is: numbers with any axes, or tokens.
enum class RowKind { kVector, kImage, kTokens, kSequence, kOtherAxes };

// A model of any layers that BuildSpec takes, on rows of any shape that it takes, for any task that
// fits. The same seed draws the same model.
class RandomNetwork {
 public:
  explicit RandomNetwork(uint64_t seed);

  const models::ModelSpec& spec() const { return spec_; }
  models::ModelSpec SpecIn(DType dtype) const;
  // Whether some of its linear layers have adapters.
  bool adapted() const { return !spec_.adapters.empty(); }
  TaskKind task() const { return task_; }
  RowKind rows() const { return rows_; }
  // Each kind of layer, with the number of axes of what it received, also within residual blocks.
  const std::set<std::pair<std::string, size_t>>& layers() const { return used_; }
  // "[7, 6]: linear 5, tanh, flatten, linear 3".
  std::string Text() const;

 private:
  using Shape = std::vector<int64_t>;

  void DrawRows();
  void DrawTask();
  // Draws the layer's text, which may not fit the shape.
  std::string DrawLayer(const std::string& kind, const Shape& shape);
  std::string DrawResidual(const Shape& shape);
  // Adds the layer to `lines` if it fits and makes no large output.
  bool Take(const std::string& line, std::vector<std::string>& lines, Shape& shape);
  void TakeSome(uint64_t count, std::vector<std::string>& lines, Shape& shape);
  void End();
  // Gives some linear layers adapters.
  void DrawAdapters(uint64_t seed);

  uint64_t Below(uint64_t bound) { return stream_.Below(bound); }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Below(static_cast<uint64_t>(high - low + 1)));
  }

  RandomStream stream_;
  RowKind rows_ = RowKind::kVector;
  TaskKind task_ = TaskKind::kClassification;
  int64_t classes_ = 1, tokens_ = 0;
  bool plain_ = false;  // only layers that a fused trainer may have, so that it takes many models
  Shape input_, shape_;
  std::vector<std::string> lines_;
  std::set<std::pair<std::string, size_t>> used_;
  ModelConfig config_;
  models::ModelSpec spec_;
};

}  // namespace macaw::training
