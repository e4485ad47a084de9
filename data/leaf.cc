#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "data/leaf_parser.h"
#include "data/readers.h"
#include "data/source_file.h"
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
    MACAW_RETURN_IF_ERROR(Annotate(AppendLeaf(text, half.rows), file));
  }
  for (size_t i = 0; i < half.rows.users.size(); ++i) {
    const std::string& name = half.rows.users[i].name;
    if (!half.place.emplace(name, i).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": user \"", name, "\" is in two files"));
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

}  // namespace

absl::StatusOr<Examples> ReadLeaf(const DataOptions& options) {
  std::string train_path = options.path, test_path = options.test_path;
  if (const std::string inner = FindIn(options.path, {"train"}); IsFolder(inner)) {
    train_path = inner;
    if (test_path.empty()) test_path = FindIn(options.path, {"test"});
  }
  Digester digest;
  MACAW_ASSIGN_OR_RETURN(Half train, ReadHalf(train_path, digest));
  const bool text = !train.rows.lengths.empty();
  Half test;
  if (!test_path.empty()) {
    MACAW_ASSIGN_OR_RETURN(test, ReadHalf(test_path, digest));
    if (text != !test.rows.lengths.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("one of ", train_path, " and ", test_path,
                                                     " holds text, the other numbers"));
    }
    const uint64_t longest = std::max(train.rows.width, test.rows.width);
    PadText(train.rows, longest);
    PadText(test.rows, longest);
    if (test.rows.width != train.rows.width) {
      return absl::InvalidArgumentError(absl::StrCat(test_path, " has ", test.rows.width,
                                                     " features a row, but ", train_path, " has ",
                                                     train.rows.width));
    }
  }
  if (test_path.empty()) PadText(train.rows, train.rows.width);
  Examples examples;
  std::vector<std::string> names;
  for (const LeafUser& user : train.rows.users) names.push_back(user.name);
  for (const LeafUser& user : test.rows.users) {
    if (!train.place.contains(user.name)) names.push_back(user.name);
  }
  ExampleStore store;
  std::vector<double> labels;
  std::vector<uint64_t> begins, test_begins;
  for (auto [half, list] : {std::pair{&train, &begins}, {&test, &test_begins}}) {
    list->push_back(labels.size());
    for (const std::string& name : names) {
      AppendUser(*half, name, store, labels);
      list->push_back(labels.size());
    }
  }
  int64_t classes = 0;
  if (train.rows.whole && (test_path.empty() || test.rows.whole)) {
    store.classes.assign(labels.begin(), labels.end());
    const int64_t known = text && options.classes == 0 ? kCharacters : options.classes;
    MACAW_ASSIGN_OR_RETURN(classes, CountClasses(store.classes, known, options.path));
  } else {
    store.targets.assign(labels.begin(), labels.end());
  }
  MACAW_ASSIGN_OR_RETURN(examples, Own(std::move(store), train.rows.width, options.path));
  examples.name = "leaf";
  examples.input_shape = {static_cast<int64_t>(train.rows.width)};
  examples.classes = classes;
  examples.train.end = examples.own_test.begin = begins.back();
  examples.group_begin = std::move(begins);
  if (!test_path.empty()) examples.test_group_begin = std::move(test_begins);
  examples.group_names = std::move(names);
  examples.digest = digest.Finish();
  return examples;
}

}  // namespace macaw::data
