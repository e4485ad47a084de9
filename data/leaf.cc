#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/utf8.h"
#include "data/leaf_parser.h"
#include "data/readers.h"
#include "data/source_file.h"
#include "data/text.h"
#include "data/vocabulary.h"

namespace macaw::data {
namespace {

// The rows of the training or of the test files: parsed in file order, then copied user by user.
struct Half {
  LeafRows rows;
  std::map<std::string, size_t> place;  // user -> position in rows.users
};

absl::StatusOr<Half> ReadHalf(const std::string& path, Digester& digest) {
  std::vector<std::string> files = {path};
  if (IsFolder(path)) {
    MACAW_ASSIGN_OR_RETURN(files, FilesIn(path, ".json"));
  }
  Half half;
  for (const std::string& file : files) {
    MACAW_ASSIGN_OR_RETURN(const std::string text, ReadSource(file, digest));
    MACAW_RETURN_IF_ERROR(CheckUtf8(text, file));
    MACAW_RETURN_IF_ERROR(Annotate(AppendLeaf(text, half.rows), file));
  }
  for (size_t i = 0; i < half.rows.users.size(); ++i) {
    const std::string& name = half.rows.users[i].name;
    if (!half.place.emplace(name, i).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": user ", Quoted(name), " is in two files"));
    }
  }
  return half;
}

// Appends the user's rows to the store. A user who is not in these files has none.
void AppendUser(const Half& half, const std::string& user, ExampleStore& store,
                std::vector<double>& labels) {
  const auto found = half.place.find(user);
  if (found == half.place.end()) return;
  const LeafUser& rows = half.rows.users[found->second];
  const auto width = half.rows.width;
  const auto features = half.rows.features.begin() + static_cast<ptrdiff_t>(rows.first_row * width);
  const auto end = features + static_cast<ptrdiff_t>(rows.rows * width);
  if (half.rows.lengths.empty()) {
    store.floats.insert(store.floats.end(), features, end);
  } else {
    store.tokens.insert(store.tokens.end(), features, end);
    const auto length = half.rows.lengths.begin() + static_cast<ptrdiff_t>(rows.first_row);
    store.lengths.insert(store.lengths.end(), length, length + static_cast<ptrdiff_t>(rows.rows));
  }
  const auto first = half.rows.labels.begin() + static_cast<ptrdiff_t>(rows.first_label);
  labels.insert(labels.end(), first, first + static_cast<ptrdiff_t>(rows.rows));
}

// Training and test files as one data set: both of text or both of numbers, and equally wide.
struct Halves {
  std::string train_path, test_path;  // test_path "": there are no test files
  Half train, test;
  bool text() const { return !train.rows.lengths.empty(); }
  bool whole() const { return train.rows.whole && (test_path.empty() || test.rows.whole); }
};

void FindPaths(const DataOptions& options, Halves& halves) {
  halves.train_path = options.path;
  halves.test_path = options.test_path;
  if (const std::string inner = FindIn(options.path, {"train"}); IsFolder(inner)) {
    halves.train_path = inner;
    if (halves.test_path.empty()) halves.test_path = FindIn(options.path, {"test"});
  }
}

// Pads text to the longest row of both halves, and refuses halves that do not fit together.
absl::Status MakeEquallyWide(Halves& halves) {
  LeafRows& train = halves.train.rows;
  LeafRows& test = halves.test.rows;
  if (halves.test_path.empty()) {
    PadText(train, train.width);
    return absl::OkStatus();
  }
  if (halves.text() != !test.lengths.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "one of ", halves.train_path, " and ", halves.test_path, " holds text, the other numbers"));
  }
  const uint64_t longest = std::max(train.width, test.width);
  PadText(train, longest);
  PadText(test, longest);
  if (test.width != train.width) {
    return absl::InvalidArgumentError(absl::StrCat(halves.test_path, " has ", test.width,
                                                   " features a row, but ", halves.train_path,
                                                   " has ", train.width));
  }
  return absl::OkStatus();
}

absl::StatusOr<Halves> ReadHalves(const DataOptions& options, Digester& digest) {
  Halves halves;
  FindPaths(options, halves);
  MACAW_ASSIGN_OR_RETURN(halves.train, ReadHalf(halves.train_path, digest));
  if (!halves.test_path.empty()) {
    MACAW_ASSIGN_OR_RETURN(halves.test, ReadHalf(halves.test_path, digest));
  }
  MACAW_RETURN_IF_ERROR(MakeEquallyWide(halves));
  return halves;
}

// The users of the training files, then those who are only in the test files.
std::vector<std::string> UsersOf(const Halves& halves) {
  std::vector<std::string> names;
  for (const LeafUser& user : halves.train.rows.users) names.push_back(user.name);
  for (const LeafUser& user : halves.test.rows.users) {
    if (!halves.train.place.contains(user.name)) names.push_back(user.name);
  }
  return names;
}

}  // namespace

absl::StatusOr<Examples> ReadLeaf(const DataOptions& options) {
  Digester digest;
  MACAW_ASSIGN_OR_RETURN(const Halves halves, ReadHalves(options, digest));
  std::vector<std::string> names = UsersOf(halves);
  ExampleStore store;
  std::vector<double> labels;
  std::vector<uint64_t> begins, test_begins;
  for (auto [half, list] : {std::pair{&halves.train, &begins}, {&halves.test, &test_begins}}) {
    list->push_back(labels.size());
    for (const std::string& name : names) {
      AppendUser(*half, name, store, labels);
      list->push_back(labels.size());
    }
  }
  int64_t classes = 0;
  if (halves.whole()) {
    store.classes.assign(labels.begin(), labels.end());
    const int64_t known = halves.text() && options.classes == 0 ? kCharacters : options.classes;
    MACAW_ASSIGN_OR_RETURN(classes, CountClasses(store.classes, known, options.path));
  } else {
    store.targets.assign(labels.begin(), labels.end());
  }
  const uint64_t width = halves.train.rows.width;
  MACAW_ASSIGN_OR_RETURN(Examples examples, Own(std::move(store), width, options.path));
  examples.name = "leaf";
  examples.input_shape = {static_cast<int64_t>(width)};
  examples.classes = classes;
  examples.train.end = examples.own_test.begin = begins.back();
  examples.group_begin = std::move(begins);
  if (!halves.test_path.empty()) examples.test_group_begin = std::move(test_begins);
  examples.group_names = std::move(names);
  NoteTargets(std::span(labels).first(examples.train.end), examples);
  NoteFirstClass(halves.text() ? kCharacters : options.classes, examples);
  examples.digest = digest.Finish();
  return examples;
}

}  // namespace macaw::data
