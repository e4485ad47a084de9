// TensorFlow Federated's files: examples/CLIENT/{pixels, label}, {image, label, coarse_label} or
// {snippets}.
#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "core/utf8.h"
#include "data/array_rows.h"
#include "data/hdf5/file.h"
#include "data/readers.h"
#include "data/text.h"
#include "data/vocabulary.h"

namespace macaw::data {
namespace {

constexpr char kExamplesGroup[] = "examples";
// Characters of a row of text, as LEAF has them; the next one is its label.
constexpr size_t kTextWidth = 80;

absl::Status AddFile(const std::string& path, Digester& digest) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  std::string piece(size_t{1} << 20, '\0');
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0)
    digest.Add(absl::string_view(piece.data(), static_cast<size_t>(file.gcount())));
  return absl::OkStatus();
}

// A file's clients in the order of their names.
struct TffFile {
  std::unique_ptr<Hdf5File> file;
  std::vector<std::string> clients;
};

absl::StatusOr<TffFile> OpenTff(const std::string& path, Digester& digest) {
  MACAW_RETURN_IF_ERROR(AddFile(path, digest));
  TffFile opened;
  MACAW_ASSIGN_OR_RETURN(opened.file, OpenHdf5(path));
  absl::StatusOr<std::vector<std::string>> clients = opened.file->Members(kExamplesGroup);
  if (!clients.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        clients.status().message(),
        "; TensorFlow Federated's files are read, which have examples/CLIENT/pixels (or image, or "
        "snippets)"));
  }
  opened.clients = *std::move(clients);
  if (opened.clients.empty())
    return absl::InvalidArgumentError(absl::StrCat(path, " holds no clients"));
  for (const std::string& client : opened.clients) {
    if (IsUtf8(client)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the client \"", EscapeToUtf8(client.substr(0, 40)),
                     "\" is not UTF-8: rename its group (h5py: file.move)"));
  }
  return opened;
}

// Which data sets of a client are its rows.
struct TffKind {
  std::string features;  // pixels, image or snippets
  std::vector<std::string> unused;
  bool text() const { return features == "snippets"; }
};

absl::StatusOr<TffKind> KindOf(const TffFile& tff, const std::string& path) {
  const std::string group = absl::StrCat(kExamplesGroup, "/", tff.clients.front());
  MACAW_ASSIGN_OR_RETURN(const std::vector<std::string> names, tff.file->Members(group));
  TffKind kind;
  for (const char* const features : {"pixels", "image", "snippets"}) {
    if (std::find(names.begin(), names.end(), features) != names.end()) kind.features = features;
  }
  if (kind.features.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", group, " has ",
                                                   absl::StrJoin(names, ", "),
                                                   ", but neither pixels, image nor snippets"));
  }
  for (const std::string& name : names) {
    if (name != kind.features && name != "label") kind.unused.push_back(name);
  }
  return kind;
}

// A text stands between two line breaks, so that its first and its last character are learned, too.
// It is cut into pieces of 81 characters (the last one is shorter); a piece is a row of all its
// characters but the last, padded to 80, and the last is the row's label.
void AppendText(const std::string& snippet, ExampleStore& store) {
  const std::string text = absl::StrCat("\n", snippet, "\n");
  for (size_t begin = 0; begin + 1 < text.size(); begin += kTextWidth + 1) {
    const size_t size = std::min(kTextWidth, text.size() - begin - 1);
    for (size_t i = 0; i < size; ++i) store.tokens.push_back(TokenOf(text[begin + i]));
    store.tokens.resize(store.tokens.size() + kTextWidth - size, 0);
    store.lengths.push_back(static_cast<int32_t>(size));
    store.classes.push_back(TokenOf(text[begin + size]));
  }
}

struct TffReading {
  ExampleStore store;
  std::optional<RowShape> shape;  // of images
  uint64_t rows() const { return store.classes.size() + store.targets.size(); }
};

absl::Status AppendImages(const StoredArray& x, const StoredArray& label, TffReading& reading) {
  MACAW_ASSIGN_OR_RETURN(const RowShape shape, ShapeOfRows(x, /*images=*/true));
  if (reading.shape.value_or(shape) != shape) {
    return RefuseArray(x, absl::StrCat("has rows of [", absl::StrJoin(shape.input_shape, ", "),
                                       "], but the first client's are [",
                                       absl::StrJoin(reading.shape->input_shape, ", "), "]"));
  }
  reading.shape = shape;
  MACAW_RETURN_IF_ERROR(AppendFeatures(x, shape, reading.store));
  const ExampleStore& store = reading.store;
  if (!store.bytes.empty() + !store.floats.empty() + !store.tokens.empty() != 1)
    return RefuseArray(x, absl::StrCat("is ", x.TypeName(), ", but the first client's are not"));
  MACAW_RETURN_IF_ERROR(AppendLabels(label, x.rows(), reading.store));
  if (!store.classes.empty() && !store.targets.empty())
    return RefuseArray(label, absl::StrCat("is ", label.TypeName(), ", but the others are not"));
  return absl::OkStatus();
}

absl::Status AppendClient(Hdf5File& file, const std::string& client, const TffKind& kind,
                          TffReading& reading) {
  const std::string group = absl::StrCat(kExamplesGroup, "/", client, "/");
  std::string bytes, label_bytes;
  MACAW_ASSIGN_OR_RETURN(const StoredArray x, file.Read(group + kind.features, bytes));
  if (x.rows() == 0) return absl::OkStatus();
  if (!kind.text()) {
    MACAW_ASSIGN_OR_RETURN(const StoredArray label, file.Read(group + "label", label_bytes));
    return AppendImages(x, label, reading);
  }
  if (x.kind != 'S' || x.row_elements() != 1) return RefuseArray(x, "must be a list of texts");
  for (uint64_t i = 0; i < x.rows(); ++i) AppendText(TextAt(x, i), reading.store);
  return absl::OkStatus();
}

// Appends the rows of `names` in their order, and where each client's begin.
absl::StatusOr<std::vector<uint64_t>> AppendAll(const TffFile& tff,
                                                const std::vector<std::string>& names,
                                                const TffKind& kind, TffReading& reading) {
  std::vector<uint64_t> begins = {reading.rows()};
  for (const std::string& name : names) {
    if (std::binary_search(tff.clients.begin(), tff.clients.end(), name))
      MACAW_RETURN_IF_ERROR(AppendClient(*tff.file, name, kind, reading));
    begins.push_back(reading.rows());
  }
  return begins;
}

}  // namespace

absl::StatusOr<Examples> ReadHdf5(const DataOptions& options) {
  Digester digest;
  MACAW_ASSIGN_OR_RETURN(const TffFile train, OpenTff(options.path, digest));
  MACAW_ASSIGN_OR_RETURN(const TffKind kind, KindOf(train, options.path));
  TffFile test;
  if (!options.test_path.empty()) {
    MACAW_ASSIGN_OR_RETURN(test, OpenTff(options.test_path, digest));
  }
  std::vector<std::string> names = train.clients;
  for (const std::string& name : test.clients) {  // those without training rows come last
    if (!std::binary_search(train.clients.begin(), train.clients.end(), name))
      names.push_back(name);
  }
  TffReading reading;
  MACAW_ASSIGN_OR_RETURN(std::vector<uint64_t> begins, AppendAll(train, names, kind, reading));
  MACAW_ASSIGN_OR_RETURN(std::vector<uint64_t> test_begins, AppendAll(test, names, kind, reading));
  if (reading.rows() == 0)
    return absl::InvalidArgumentError(absl::StrCat(options.path, " holds no examples"));
  const int64_t known = kind.text() && options.classes == 0 ? kCharacters : options.classes;
  int64_t classes = 0;
  if (reading.store.targets.empty()) {
    MACAW_ASSIGN_OR_RETURN(classes, CountClasses(reading.store.classes, known, options.path));
  }
  std::vector<int64_t> shape = {int64_t{kTextWidth}};
  if (!kind.text()) shape = reading.shape->input_shape;
  uint64_t width = 1;
  for (const int64_t extent : shape) width *= static_cast<uint64_t>(extent);
  MACAW_ASSIGN_OR_RETURN(Examples examples, Own(std::move(reading.store), width, options.path));
  examples.name = "hdf5";
  examples.input_shape = std::move(shape);
  examples.classes = classes;
  examples.train.end = examples.own_test.begin = begins.back();
  examples.group_begin = std::move(begins);
  if (!options.test_path.empty()) examples.test_group_begin = std::move(test_begins);
  examples.group_names = std::move(names);
  if (!kind.unused.empty())
    examples.notes.push_back(absl::StrCat("not read: ", absl::StrJoin(kind.unused, ", ")));
  examples.digest = digest.Finish();
  return examples;
}

}  // namespace macaw::data
