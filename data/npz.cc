#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/status.h"
#include "core/utf8.h"
#include "data/array_rows.h"
#include "data/npy.h"
#include "data/readers.h"
#include "data/source_file.h"
#include "data/text.h"
#include "data/zip.h"

namespace macaw::data {
namespace {

// How arrays are called: by us, by Keras and by MedMNIST.
using ArrayNames = std::initializer_list<const char*>;
constexpr ArrayNames kTrainX = {"x", "x_train", "train_images"},
                     kTrainY = {"y", "y_train", "train_labels"}, kTestX = {"x_test", "test_images"},
                     kTestY = {"y_test", "test_labels"}, kTrainClient = {"client", "client_train"},
                     kTestClient = {"client_test"};

// The arrays of one file by their names, unpacked one at a time.
class NpzArrays {
 public:
  static absl::StatusOr<NpzArrays> Open(const std::string& path, Digester& digest) {
    MACAW_ASSIGN_OR_RETURN(std::string bytes, ReadSource(path, digest));
    MACAW_ASSIGN_OR_RETURN(ZipArchive archive, ZipArchive::Parse(std::move(bytes), path));
    return NpzArrays(std::move(archive));
  }

  // Unpacks the first of the names that there is; nothing if there is none.
  absl::StatusOr<std::optional<StoredArray>> Find(const ArrayNames& names, std::string& bytes) {
    for (const char* const name : names) {
      for (const ZipMember& member : archive_.members()) {
        if (member.name != absl::StrCat(name, ".npy")) continue;
        used_.push_back(name);
        MACAW_ASSIGN_OR_RETURN(bytes, archive_.Unpack(member));
        MACAW_ASSIGN_OR_RETURN(StoredArray array,
                               ParseNpy(bytes, absl::StrCat(archive_.path(), ": ", name)));
        return array;
      }
    }
    return std::nullopt;
  }
  absl::Status Missing(const ArrayNames& names) const {
    return absl::InvalidArgumentError(absl::StrCat(archive_.path(), " has no array ",
                                                   absl::StrJoin(names, " or "), "; it has ",
                                                   NamesBut({})));
  }
  const std::string& path() const { return archive_.path(); }
  // For people: arrays that nothing has read; "" if there are none.
  std::string Unused() const { return NamesBut(used_); }

 private:
  explicit NpzArrays(ZipArchive archive) : archive_(std::move(archive)) {}
  std::string NamesBut(const std::vector<std::string>& some) const {
    std::vector<std::string> names;
    for (const ZipMember& member : archive_.members()) {
      const std::string name(absl::StripSuffix(member.name, ".npy"));
      if (std::find(some.begin(), some.end(), name) == some.end() && names.size() < 20)
        names.push_back(Quoted(name));
    }
    return absl::StrJoin(names, ", ");
  }

  ZipArchive archive_;
  std::vector<std::string> used_;
};

// NpzClients in the order of their first rows.
class NpzClients {
 public:
  absl::Status Append(const StoredArray& client, uint64_t rows) {
    const bool name = client.is_integer() || client.kind == 'U' || client.kind == 'S';
    if (!name || client.shape.empty() || client.rows() != rows || client.row_elements() != 1) {
      return RefuseArray(
          client,
          absl::StrCat("is ", client.TypeName(), " of shape [", absl::StrJoin(client.shape, ", "),
                       "]; it must have a whole number or a text for each of ", rows,
                       " rows: whose row it is"));
    }
    for (uint64_t i = 0; i < rows; ++i) {
      std::string text = TextAt(client, i);
      if (const absl::Status status = CheckName(client, i, text); !status.ok()) return status;
      const auto [place, is_new] =
          numbers_.emplace(std::move(text), static_cast<uint32_t>(names.size()));
      if (is_new) names.push_back(place->first);
      of_row.push_back(place->second);
    }
    return absl::OkStatus();
  }
  std::vector<std::string> names;
  std::vector<uint32_t> of_row;

 private:
  static absl::Status CheckName(const StoredArray& client, uint64_t row, const std::string& name) {
    if (!IsUtf8(name)) {
      return RefuseArray(client, absl::StrCat("has the name \"", EscapeToUtf8(name.substr(0, 40)),
                                              "\" in row ", row,
                                              ", which is not UTF-8; write texts, of Latin-1 "
                                              "with numpy.char.decode(client, \"latin-1\")"));
    }
    if (name.empty())
      return RefuseArray(client, absl::StrCat("has no name in row ", row, ": whose row it is"));
    if (absl::StrContains(name, '\0'))
      return RefuseArray(client, absl::StrCat("has a name with a zero byte in row ", row));
    return absl::OkStatus();
  }
  std::unordered_map<std::string, uint32_t> numbers_;
};

// One half of the data: its arrays' names in a file.
struct NpzHalf {
  ArrayNames x, y, client;
};

struct NpzReading {
  ExampleStore store;
  NpzClients clients;
  std::optional<RowShape> shape;
  uint64_t rows = 0;
  std::vector<std::string> spread;  // what is to be said of the rows for training
};

void AddNote(std::string note, std::vector<std::string>& notes) {
  if (!note.empty()) notes.push_back(std::move(note));
}

// Reads one half of a file. False: the file does not have it.
absl::StatusOr<bool> ReadNpzHalf(NpzArrays& arrays, const NpzHalf& half, NpzReading& reading) {
  std::string bytes;
  MACAW_ASSIGN_OR_RETURN(const std::optional<StoredArray> x, arrays.Find(half.x, bytes));
  if (!x.has_value()) return false;
  MACAW_ASSIGN_OR_RETURN(const RowShape shape, ShapeOfRows(*x, /*images=*/false));
  const uint64_t before = reading.rows, rows = x->rows();
  if (rows > UINT32_MAX) return RefuseArray(*x, "has more rows than 32 bits can number");
  if (reading.shape.has_value() && *reading.shape != shape) {
    return RefuseArray(*x, absl::StrCat("has rows of [", absl::StrJoin(shape.input_shape, ", "),
                                        "], but those for training are [",
                                        absl::StrJoin(reading.shape->input_shape, ", "), "]"));
  }
  reading.shape = shape;
  MACAW_RETURN_IF_ERROR(AppendFeatures(*x, shape, reading.store));
  reading.rows += rows;
  if (before == 0) AddNote(NoteOnSpread(*x), reading.spread);
  const ExampleStore& store = reading.store;
  if (!store.bytes.empty() + !store.floats.empty() + !store.tokens.empty() != 1)
    return RefuseArray(*x,
                       absl::StrCat("is ", x->TypeName(), ", but the rows for training are not"));

  MACAW_ASSIGN_OR_RETURN(const std::optional<StoredArray> y, arrays.Find(half.y, bytes));
  if (!y.has_value()) return arrays.Missing(half.y);
  MACAW_RETURN_IF_ERROR(AppendLabels(*y, rows, reading.store));
  if (before == 0) AddNote(NoteOnTargets(*y), reading.spread);
  if (!store.classes.empty() && !store.targets.empty())
    return RefuseArray(*y,
                       absl::StrCat("is ", y->TypeName(), ", but the labels for training are not"));

  MACAW_ASSIGN_OR_RETURN(const std::optional<StoredArray> client, arrays.Find(half.client, bytes));
  if (!client.has_value()) return true;
  if (reading.clients.of_row.size() != before)
    return RefuseArray(*client,
                       "names the clients of these rows, but nothing names those of others");
  MACAW_RETURN_IF_ERROR(reading.clients.Append(*client, rows));
  return true;
}

}  // namespace

absl::StatusOr<Examples> ReadNpz(const DataOptions& options) {
  const NpzHalf train{kTrainX, kTrainY, kTrainClient}, test{kTestX, kTestY, kTestClient};
  Digester digest;
  NpzReading reading;
  MACAW_ASSIGN_OR_RETURN(NpzArrays arrays, NpzArrays::Open(options.path, digest));
  MACAW_ASSIGN_OR_RETURN(const bool found, ReadNpzHalf(arrays, train, reading));
  if (!found) return arrays.Missing(kTrainX);
  const uint64_t train_rows = reading.rows;
  std::string unused;
  if (options.test_path.empty()) {
    MACAW_RETURN_IF_ERROR(ReadNpzHalf(arrays, test, reading).status());
    unused = arrays.Unused();
  } else {
    unused = arrays.Unused();
    MACAW_ASSIGN_OR_RETURN(NpzArrays second, NpzArrays::Open(options.test_path, digest));
    MACAW_ASSIGN_OR_RETURN(const bool named, ReadNpzHalf(second, test, reading));
    if (!named) {
      MACAW_ASSIGN_OR_RETURN(const bool bare, ReadNpzHalf(second, train, reading));
      if (!bare) return second.Missing(kTestX);
    }
  }
  int64_t classes = 0;
  if (reading.store.targets.empty()) {
    MACAW_ASSIGN_OR_RETURN(classes,
                           CountClasses(reading.store.classes, options.classes, options.path));
  }
  uint64_t width = 1;
  for (const int64_t extent : reading.shape->input_shape) width *= static_cast<uint64_t>(extent);
  MACAW_ASSIGN_OR_RETURN(Examples examples, Own(std::move(reading.store), width, options.path));
  examples.name = "npz";
  examples.input_shape = reading.shape->input_shape;
  examples.classes = classes;
  examples.train.end = examples.own_test.begin = train_rows;
  if (reading.shape->channels_last)
    examples.notes.push_back("images are stored with their channels last; they are read as [" +
                             absl::StrJoin(examples.input_shape, ", ") + "]");
  std::ranges::move(reading.spread, std::back_inserter(examples.notes));
  NoteFirstClass(options.classes, examples);
  if (!unused.empty()) examples.notes.push_back(absl::StrCat("not read: ", unused));
  examples.client_of_row = std::move(reading.clients.of_row);
  examples.group_names = std::move(reading.clients.names);
  examples.digest = digest.Finish();
  return examples;
}

}  // namespace macaw::data
