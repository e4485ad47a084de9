#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "core/files.h"
#include "core/status.h"
#include "data/readers.h"
#include "data/source_file.h"

namespace macaw::data {
namespace {

struct IdxHeader {
  std::vector<uint32_t> extents;
  size_t size = 0;  // bytes before the data
};

uint32_t BigEndian(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

absl::StatusOr<IdxHeader> ParseHeader(const std::string& bytes, size_t axes,
                                      const std::string& path) {
  IdxHeader header{.size = 4 + 4 * axes};
  if (bytes.size() < header.size) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is cut short: ", bytes.size(),
                                                   " bytes cannot hold the ", header.size,
                                                   "-byte IDX header"));
  }
  const uint32_t magic = BigEndian(bytes, 0);
  if (magic != 0x800 + axes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is not an IDX file of bytes with ", axes, " axes: its magic number is 0x",
        absl::Hex(magic, absl::kZeroPad8), ", expected 0x0000080", axes));
  }
  uint64_t expected = 1;
  for (size_t axis = 0; axis < axes; ++axis) {
    header.extents.push_back(BigEndian(bytes, 4 + 4 * axis));
    if (__builtin_mul_overflow(expected, header.extents.back(), &expected)) expected = UINT64_MAX;
  }
  if (expected != bytes.size() - header.size) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, expected > bytes.size() - header.size ? " is cut short: " : " is too long: ",
        "its header announces ", expected, " bytes of data, it holds ",
        bytes.size() - header.size));
  }
  return header;
}

absl::StatusOr<std::string> LabelsBeside(const std::string& images) {
  const size_t slash = images.rfind('/') + 1;
  std::string stem = images.substr(slash);
  if (absl::EndsWith(stem, ".gz")) stem.resize(stem.size() - 3);
  const std::string name = absl::StrReplaceAll(stem, {{"images", "labels"}, {"idx3", "idx1"}});
  const std::string folder = slash == 0 ? "." : images.substr(0, slash);
  std::string labels = name == stem ? "" : FindIn(folder, {name});
  if (labels.empty()) {
    return absl::NotFoundError(absl::StrCat("no labels beside ", images, ": expected ", name,
                                            " or ", name, ".gz in ", folder));
  }
  return labels;
}

struct Shape {
  uint32_t rows = 0;
  uint32_t columns = 0;
  bool operator==(const Shape&) const = default;
};

// Appends one pair of files (images and labels) to `store`.
absl::StatusOr<Shape> AppendPair(const std::string& path, ExampleStore& store, Digester& digest) {
  MACAW_ASSIGN_OR_RETURN(const std::string labels_path, LabelsBeside(path));
  MACAW_ASSIGN_OR_RETURN(const std::string images, ReadSource(path, digest));
  MACAW_ASSIGN_OR_RETURN(const IdxHeader header, ParseHeader(images, 3, path));
  MACAW_ASSIGN_OR_RETURN(const std::string labels, ReadSource(labels_path, digest));
  MACAW_ASSIGN_OR_RETURN(const IdxHeader labels_header, ParseHeader(labels, 1, labels_path));
  if (labels_header.extents[0] != header.extents[0]) {
    return absl::InvalidArgumentError(absl::StrCat(path, " holds ", header.extents[0],
                                                   " images, but ", labels_path, " ",
                                                   labels_header.extents[0], " labels"));
  }
  store.bytes.insert(store.bytes.end(), images.begin() + static_cast<ptrdiff_t>(header.size),
                     images.end());
  for (size_t i = labels_header.size; i < labels.size(); ++i) {
    store.classes.push_back(static_cast<uint8_t>(labels[i]));
  }
  return Shape{header.extents[1], header.extents[2]};
}

}  // namespace

absl::StatusOr<Examples> ReadIdx(const DataOptions& options) {
  std::string train = options.path, test = options.test_path;
  if (IsFolder(options.path)) {
    train = FindIn(options.path, {"train-images-idx3-ubyte", "train-images.idx3-ubyte"});
    const std::string t10k =
        FindIn(options.path, {"t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte"});
    if (train.empty()) {
      train = t10k;  // there is only the small file, so it is used for training
    } else if (test.empty()) {
      test = t10k;
    }
    if (train.empty()) {
      return absl::NotFoundError(absl::StrCat("folder ", options.path,
                                              " holds no train-images-idx3-ubyte or "
                                              "t10k-images-idx3-ubyte (.gz or not)"));
    }
  }
  ExampleStore store;
  Digester digest;
  MACAW_ASSIGN_OR_RETURN(const Shape shape, AppendPair(train, store, digest));
  const uint64_t own_test_begin = store.classes.size();
  if (!test.empty()) {
    MACAW_ASSIGN_OR_RETURN(const Shape test_shape, AppendPair(test, store, digest));
    if (test_shape != shape) {
      return absl::InvalidArgumentError(absl::StrCat(test, " holds images of ", test_shape.rows,
                                                     " x ", test_shape.columns, ", but ", train,
                                                     " of ", shape.rows, " x ", shape.columns));
    }
  }
  MACAW_ASSIGN_OR_RETURN(const int64_t classes,
                         CountClasses(store.classes, options.classes, train));
  MACAW_ASSIGN_OR_RETURN(Examples examples,
                         Own(std::move(store), uint64_t{shape.rows} * shape.columns, train));
  examples.name = "idx";
  examples.input_shape = {1, shape.rows, shape.columns};
  examples.classes = classes;
  examples.train.end = examples.own_test.begin = own_test_begin;
  examples.digest = digest.Finish();
  return examples;
}

}  // namespace macaw::data
