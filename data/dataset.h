#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/digest.h"
#include "core/ids.h"
#include "plan/transform.h"

namespace macaw::data {

enum class Split : uint8_t { kTrain = 0, kValidation = 1, kTest = 2 };
enum class FeatureType : uint8_t { kU8 = 0, kF32 = 1, kI32 = 2 };

constexpr size_t SizeOf(FeatureType type) { return type == FeatureType::kU8 ? 1 : 4; }

// A block of examples that the caller keeps alive: `count` rows of `features`, row-major and
// contiguous, with one label per row. Exactly one of `classes` and `targets` is set.
struct ExampleBlock {
  FeatureType type = FeatureType::kF32;
  const std::byte* features = nullptr;
  size_t row_bytes = 0;
  const int32_t* classes = nullptr;
  const float* targets = nullptr;
  const int32_t* lengths = nullptr;  // positions in use of each row of padded sequences; else null
  uint64_t count = 0;
};

// The key of the noise on a client's rows (TransformConfig::client_noise). The noise belongs to the
// client's data: a row has the same noise whenever it is used. The default key means no noise.
struct NoiseKey {
  uint64_t seed = 0;  // of the run
  ClientId client{};
  Split split = Split::kTrain;
  uint64_t clients = 0;  // the population; 0: no noise
};

// In rows of several clients: those from `first` on, up to the next owner's, are the client's.
struct RowOwner {
  ClientId client{};
  uint64_t first = 0;
};

// The rows of one client (or of a test set), in stored order: rows `index[i]` of the block, or all
// rows of the block if `index` is empty. (For no rows at all, the block has count 0.) Cheap to
// copy. The bytes live as long as `keep_alive`, or as long as the dataset where that is null.
struct Rows {
  ExampleBlock block;
  std::span<const uint32_t> index;
  std::shared_ptr<const void> keep_alive;
  NoiseKey noise;
  // Of rows that several clients have given (together.h), in order, the first at 0; what is a
  // client's own in its rows, such as its noise, stays its own. Empty: all are noise.client's.
  std::span<const RowOwner> owners;
  std::string client_name;  // in its dataset; empty: nobody's (the central test set)

  uint64_t size() const { return index.empty() ? block.count : index.size(); }
  bool empty() const { return size() == 0; }
  uint64_t at(uint64_t i) const { return index.empty() ? i : index[i]; }  // a row of the block
  // The key of the client that the row belongs to, and the row's place among that client's rows.
  // Takes time O(log owners).
  std::pair<NoiseKey, uint64_t> Own(uint64_t i) const;
};

// The number of tokens in use in the rows; 0 where features are not tokens.
uint64_t TokensOf(const Rows& rows);

// What the rest of the system must know before it reads any row.
struct DatasetInfo {
  std::string name;  // for people: "idx", "synthetic(1,1)"
  FeatureType feature_type = FeatureType::kF32;
  std::vector<int64_t> input_shape;        // one example
  int64_t classes = 0;                     // 0: regression targets
  std::vector<std::string> class_names;    // empty: the numbers are the names
  std::vector<std::string> feature_names;  // empty: unknown
  // The default for the stored form (scale 1/255 for bytes); a configuration may override it.
  TransformConfig transform;
  uint64_t clients = 0;
  uint64_t train_clients = 0;   // clients with training rows; 0: all
  uint64_t train_examples = 0;  // over all clients
  uint64_t train_tokens = 0;    // tokens in use over all clients; 0: the data is not sequences
  uint64_t test_examples = 0;   // of the central test set
  uint64_t val_examples = 0;    // of the central validation set
  double mean_classes_per_client = 0;  // 0 when unknown (generated on demand)
  std::vector<std::string> notes;      // for people: what else the division did, one line each
  // The rows are counted here and lie elsewhere: `features` and labels of all blocks are null. Only
  // a program of the owner's can train them (training/process).
  bool declared = false;
  bool divided = false;  // the clients are [partition]'s, not the source's own
  Digest digest;         // of everything that decides the rows; part of a run's fingerprint
  Digest test_digest;    // the same for the central sets alone; zero: use `digest`
};

// The names of the classes for people: those of data.class_names, if there are some, else the
// data's own. Errors: another number than there are classes; a name that the data have for another
// class.
absl::StatusOr<std::vector<std::string>> NamesOfClasses(const std::vector<std::string>& given,
                                                        const DatasetInfo& info);

// Clients and their examples. Immutable and thread-safe after construction. Clients are numbered 0
// … clients−1. Memory is O(data) if the data is resident, and O(1) per client if it is generated on
// demand.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const DatasetInfo& info() const = 0;
  // Number of rows, without reading or generating them.
  virtual uint32_t Examples(ClientId client, Split split) const = 0;
  // Returns the rows. It may generate or decode them (milliseconds), so call it from a prefetcher
  // if that matters.
  virtual absl::StatusOr<Rows> Client(ClientId client, Split split) const = 0;
  // The training rows that are the client's own: those of Client(), unless one client has
  // everybody's (together.h).
  virtual absl::StatusOr<Rows> OwnTrainingRows(ClientId client) const {
    return Client(client, Split::kTrain);
  }
  // The central test set; empty when the data has none.
  virtual Rows CentralTest() const = 0;
  // The central validation set: rows that nobody trains on and that are no test rows, so that
  // choices can be made on them. Empty when the data has none.
  virtual Rows CentralValidation() const { return {}; }
  virtual std::string ClientName(ClientId client) const;  // default: its number
};

}  // namespace macaw::data
