#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "algorithms/api/description.h"
#include "models/slice.h"

namespace macaw::algorithms {

// The widths of a run's models, the widest first, and which client has which.
class Levels {
 public:
  // The parameters that Of reads, of a rule with this name: rates, assign, shares, each.
  static std::vector<ParameterSpec> Parameters(absl::string_view rule);
  static absl::StatusOr<Levels> Of(const Setup& setup);
  // Whether levels go by the numbers of the N clients: "fix" and "list".
  static bool ByNumber(const Setup& setup);

  size_t count() const { return rates_.size(); }
  double rate(size_t level) const { return rates_[level]; }
  // The same whenever it is asked in a turn. Asserts Has.
  size_t LevelOf(const ClientContext& context) const;
  // Whether the client has a level: an error names one that is beyond the N clients.
  absl::Status Has(ClientId client) const;

 private:
  enum class Assign { kFix, kOnce, kDynamic, kList };
  // Reads each.
  absl::Status List(const Setup& setup);
  // Counts the clients of each level.
  absl::Status Fix(uint64_t clients);
  size_t Drawn(RandomStream stream) const;

  std::vector<double> rates_;   // falling
  std::vector<double> shares_;  // of the clients; only their ratios count
  Assign assign_ = Assign::kFix;
  std::vector<uint64_t> ends_;  // kFix: behind the last client of each level
  std::vector<size_t> each_;    // kList: by client
};

// What is sent at each level: the layout of the narrower model, or the whole one's at rate 1.
struct SliceLayouts {
  std::vector<LayoutPtr> of;   // by level
  std::vector<size_t> output;  // the entries of the output layer
  bool has_group_norm = false;

  // Errors say why the model cannot be narrowed.
  static absl::StatusOr<SliceLayouts> Of(const Setup& setup, const Levels& levels);
};

}  // namespace macaw::algorithms
