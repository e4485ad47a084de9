#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/examples.h"
#include "data/options.h"

namespace macaw::data {

// The prepared form: one safetensors file, which is mapped and not read, so that gigabytes open at
// once and processes share the pages. With N rows and C clients:
//
//   features             U8, F32 or I32 [N, ...]   row-major; one row is one example
//   labels               I32 [N] or F32 [N]        classes, or regression targets
//   lengths              I32 [N]                   optional: tokens in use of each row; of rows
//                                                  [positions, width], positions
//   train_offsets        I64 [C+1]                 client c's training rows are
//                                                  train_offsets[c] ... train_offsets[c+1]-1
//   val_offsets          I64 [C+1]                 optional, the same for validation rows
//   test_offsets         I64 [C+1]                 optional, the same for test rows
//   central_test         I64 [2]                   optional: first row of the central test set,
//                                                  and one past its last row
//   central_val          I64 [2]                   optional, beside train_offsets: the same for the
//                                                  central validation set
//   client_names         U8 [bytes]                optional, with
//   client_name_offsets  I64 [C+1]                 the place of each name in client_names
//
// Metadata, all optional: name, classes, class_names and feature_names (JSON lists; the latter of
// the elements of an example or of its first axis), scale (default
// 1/255 for U8), mean and std (numbers separated by commas). Without train_offsets, [partition]
// divides the rows before (or after) central_test.

// Files up to this size are read at opening: for their digest, and to check their features.
inline constexpr size_t kReadWhole = size_t{64} << 20;

// I64 numbers at any alignment of a mapped file.
class OffsetTable {
 public:
  OffsetTable() = default;
  explicit OffsetTable(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  uint64_t size() const { return bytes_.size() / 8; }
  uint64_t operator[](uint64_t i) const {
    uint64_t value;
    std::memcpy(&value, bytes_.data() + 8 * i, 8);
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
};

struct PreparedFile {
  Examples examples;
  OffsetTable offsets[3];  // by Split; empty when absent
  OffsetTable name_offsets;
  std::span<const std::byte> names;
};

// Maps a file and checks it: names, types and shapes, offsets (ascending, inside the rows), labels.
// Notes the tensors that are not read. Of a file above 64 MiB no features but those of central sets
// are read, so that it opens at once (Examples::unchecked). Errors name the file and the tensor.
absl::StatusOr<PreparedFile> ReadPrepared(const DataOptions& options);

// Adds a note of the rows that neither a client nor a central set has. `divided`: [partition]
// divides the training rows, and nothing has the clients' validation and test rows.
void NoteUnusedRows(PreparedFile& file, bool divided);

// Adds a note for each set of rows that measure something and train clients, too: what they measure
// was trained on.
void NoteSharedRows(PreparedFile& file);

// A dataset of the file's own clients, whose rows are read from the map without copying.
std::unique_ptr<Dataset> ServePrepared(PreparedFile file);

// Writes any dataset in this form, client by client. Rows are in the order train, validation, test,
// central test, central validation. `class_names`: other names of the classes than the dataset's
// own (NamesOfClasses); empty: none.
absl::Status WritePrepared(const Dataset& dataset, const std::string& path,
                           const std::vector<std::string>& class_names = {});

}  // namespace macaw::data
