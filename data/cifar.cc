#include <string>
#include <utility>
#include <vector>

#include "core/files.h"
#include "core/status.h"
#include "data/readers.h"
#include "data/source_file.h"

namespace macaw::data {
namespace {

constexpr size_t kPixels = 3072;  // planes R, G, B of 32 x 32

struct Kind {
  std::string name;
  int32_t classes;
  size_t label_bytes;  // the label is the last of them
  std::vector<std::string> train;
  std::string test;
  std::string folder;
};

absl::Status Append(const std::string& path, const Kind& kind, ExampleStore& store,
                    Digester& digest) {
  MACAW_ASSIGN_OR_RETURN(const std::string bytes, ReadSource(path, digest));
  const size_t record = kind.label_bytes + kPixels;
  if (bytes.size() % record != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is cut short or no ", kind.name,
                                                   " file: ", bytes.size(),
                                                   " bytes are not a multiple of ", record));
  }
  for (size_t at = 0; at < bytes.size(); at += record) {
    const auto label = static_cast<uint8_t>(bytes[at + kind.label_bytes - 1]);
    if (label >= kind.classes) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": label ", label, " of row ",
                                                     at / record, " is out of range 0 ... ",
                                                     kind.classes - 1));
    }
    store.classes.push_back(label);
    const auto pixels = bytes.begin() + static_cast<ptrdiff_t>(at + kind.label_bytes);
    store.bytes.insert(store.bytes.end(), pixels, pixels + kPixels);
  }
  return absl::OkStatus();
}

absl::StatusOr<Examples> Read(const DataOptions& options, const Kind& kind) {
  std::vector<std::string> train = {options.path};
  std::string test = options.test_path;
  if (IsFolder(options.path)) {
    std::string folder = options.path;
    if (const std::string inner = FindIn(folder, {kind.folder}); !inner.empty()) folder = inner;
    train.clear();
    for (const std::string& name : kind.train) {
      if (const std::string file = FindIn(folder, {name}); !file.empty()) train.push_back(file);
    }
    if (train.empty()) {
      return absl::NotFoundError(absl::StrCat("folder ", folder, " holds no ", kind.train.front()));
    }
    if (test.empty()) test = FindIn(folder, {kind.test});
  }
  ExampleStore store;
  Digester digest;
  for (const std::string& path : train) MACAW_RETURN_IF_ERROR(Append(path, kind, store, digest));
  const uint64_t own_test_begin = store.classes.size();
  if (!test.empty()) MACAW_RETURN_IF_ERROR(Append(test, kind, store, digest));
  MACAW_ASSIGN_OR_RETURN(Examples examples, Own(std::move(store), kPixels, options.path));
  examples.name = kind.name;
  examples.input_shape = {3, 32, 32};
  examples.classes = kind.classes;
  examples.train.end = examples.own_test.begin = own_test_begin;
  examples.digest = digest.Finish();
  return examples;
}

}  // namespace

absl::StatusOr<Examples> ReadCifar10(const DataOptions& options) {
  return Read(options, {.name = "cifar10",
                        .classes = 10,
                        .label_bytes = 1,
                        .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                  "data_batch_4.bin", "data_batch_5.bin"},
                        .test = "test_batch.bin",
                        .folder = "cifar-10-batches-bin"});
}

absl::StatusOr<Examples> ReadCifar100(const DataOptions& options) {
  return Read(options, {.name = "cifar100",
                        .classes = 100,
                        .label_bytes = 2,
                        .train = {"train.bin"},
                        .test = "test.bin",
                        .folder = "cifar-100-binary"});
}

}  // namespace macaw::data
