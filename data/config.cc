#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "data/options.h"
#include "data/partition.h"

namespace macaw::data {

using settings::Above;
using settings::AtLeast;
using settings::Below;
using settings::Field;
using settings::Role;
using settings::Section;
using settings::Value;

namespace {

std::vector<std::string> Names(const std::vector<Choice>& choices) {
  std::vector<std::string> names;
  for (const Choice& choice : choices) names.push_back(choice.name);
  return names;
}

std::string Listed(absl::string_view before, const std::vector<std::string>& words) {
  return absl::StrCat(before, "\"", absl::StrJoin(words, "\", \""), "\"");
}

// A key that some of this room's sources read. What a plug-in's source reads is not known here, nor
// which source a path without one has.
void ReadBy(Field<DataOptions>& field, std::vector<std::string> sources, std::string words = "") {
  if (words.empty()) words = Listed("data.source = ", sources);
  field.Needs(
      [sources = std::move(sources), known = Names(DataSources())](const DataOptions& data) {
        return settings::Contains(sources, data.source) || !settings::Contains(known, data.source);
      },
      words);
}

// The same, but for these sources.
void NotReadBy(Field<DataOptions>& field, const std::vector<std::string>& others) {
  std::vector<std::string> sources = Names(DataSources());
  std::erase_if(sources, [&](const std::string& name) { return settings::Contains(others, name); });
  ReadBy(field, std::move(sources), Listed("data.source other than ", others));
}

// A column's name, or its number from 0.
void AddColumn(Section<DataOptions>& f, const std::string& key, std::string DataOptions::*column,
               std::string help) {
  Field<DataOptions>& field = f.Add(key, column, std::move(help)).Expecting("a name or a number");
  field.set = [column, set = field.set](DataOptions& data, const Value& value) {
    const int64_t* number = value.As<int64_t>();
    if (number == nullptr) return set(data, value);
    if (*number < 0) return false;
    data.*column = absl::StrCat(*number);
    return true;
  };
  ReadBy(field, {"csv"});
}

// "auto" or a boolean.
void AddResident(Section<DataOptions>& f) {
  Field<DataOptions>& field =
      f.AddChoice("resident", &DataOptions::resident, {"auto", "true", "false"},
                  "synthetic: whether rows are kept in memory or generated on demand")
          .Expecting("\"auto\" | true | false")
          .As(Role::kCompute);
  ReadBy(field, {"synthetic"});
  field.set = [set = field.set](DataOptions& data, const Value& value) {
    const bool* flag = value.As<bool>();
    return set(data, flag == nullptr ? value : Value{std::string(*flag ? "true" : "false")});
  };
  field.get = [](const DataOptions& data) -> std::optional<Value> {
    if (data.resident == "auto") return Value{data.resident};
    return Value{data.resident == "true"};
  };
}

// A key that these partition schemes read.
void ForSchemes(Field<PartitionOptions>& field, std::vector<std::string> schemes) {
  const std::string words = Listed("partition.scheme = ", schemes);
  field.Needs(
      [schemes = std::move(schemes)](const PartitionOptions& partition) {
        return settings::Contains(schemes, partition.scheme);
      },
      words);
}

// Those that divide rows themselves; "auto" does where the data has no clients of its own.
std::vector<std::string> DividingSchemes() {
  std::vector<std::string> schemes = Names(PartitionSchemes());
  std::erase(schemes, "natural");
  std::erase(schemes, "file");
  return schemes;
}

// One character, or "tab". Cells hold letters, digits and signs of numbers, so these separate none.
void AddSeparator(Section<DataOptions>& f) {
  Field<DataOptions>& field =
      f.Add("separator", &DataOptions::separator,
            "csv: separator of cells, \"tab\" or a character; default: the comma, semicolon "
            "or tab of the first line")
          .Expecting(
              "\"tab\", or one character that is no letter, digit, blank, quotation mark, "
              "\"+\", \"-\" or \".\"");
  field.set = [](DataOptions& data, const Value& value) {
    const std::string* const word = value.As<std::string>();
    if (word == nullptr) return false;
    const std::string separator = *word == "\t" ? kTabSeparator : *word;
    const bool character = separator.size() == 1 && absl::ascii_ispunct(separator[0]) &&
                           !absl::StrContains("\"+-.", separator[0]);
    if (!character && separator != kTabSeparator) return false;
    data.separator = separator;
    return true;
  };
  ReadBy(field, {"csv"});
}

// The number that a run has is in its files, and that of a histogram's clients only if it is given.
void AddClients(Section<PartitionOptions>& f) {
  using P = PartitionOptions;
  Field<P>& field = f.Add(
      "clients", &P::clients,
      "number of clients; histogram: how many of its clients are drawn (default: all)", AtLeast(1));
  field.get = [](const P& partition) -> std::optional<Value> {
    return Value{
        static_cast<int64_t>(partition.clients == 0 ? kDefaultClients : partition.clients)};
  };
  field.Hidden([](const P& partition) {
    return partition.scheme == kHistogramScheme && partition.clients == 0;
  });
  ForSchemes(field, DividingSchemes());
}

Section<SyntheticOptions> SyntheticSection() {
  using S = SyntheticOptions;
  Section<S> f;
  const auto uneven = [](const S& synthetic) { return !synthetic.iid; };
  const char* const needs_uneven = "data.synthetic.iid = false";
  f.Add("clients", &S::clients, "number of clients", AtLeast(1));
  f.Add("alpha", &S::alpha, "standard deviation of the clients' model means", AtLeast(0))
      .Needs(uneven, needs_uneven);
  f.Add("beta", &S::beta, "standard deviation of the clients' feature means", AtLeast(0))
      .Needs(uneven, needs_uneven);
  f.Add("max_size", &S::max_size, "cap on a client's examples; 0: none", AtLeast(0));
  f.Add("iid", &S::iid, "whether all clients have one model");
  return f;
}

}  // namespace

Section<DataOptions> DataSection(const std::vector<std::string>& more_sources) {
  using D = DataOptions;
  Section<D> f;
  std::vector<std::string> sources = Names(DataSources());
  sources.insert(sources.end(), more_sources.begin(), more_sources.end());
  f.AddChoice("source", &D::source, std::move(sources), "the form of the examples");
  NotReadBy(f.AddPath("path", &D::path, "file or folder").As(Role::kResult), {"synthetic"});
  NotReadBy(f.AddPath("test_path", &D::test_path, "a second file of the same kind, for tests")
                .As(Role::kResult),
            {"synthetic", "prepared", "declared"});
  f.AddSeed("seed", &D::seed, "seed of splits and generated data; default: run.seed");
  NotReadBy(
      f.Add(
          "test_fraction", &D::test_fraction,
          "share of all rows that is the central test set, where the source has none; default: 0.1, "
          "but a prepared file's own clients keep their rows",
          Below(0, 1)),
      {"declared"});
  NotReadBy(
      f.Add("central_val_fraction", &D::central_val_fraction,
            "share of the training rows (of all rows, where test_fraction is cut) that is the "
            "central validation set, cut before the partition: val_*",
            Below(0, 1)),
      {"declared"});
  f.Add("client_test_fraction", &D::client_test_fraction,
        "share of each client's rows that tests it (evaluation.clients); rounded up or down at "
        "random, so that small clients have some",
        Below(0, 1));
  f.Add("val_fraction", &D::val_fraction,
        "share of each client's rows that validates it (evaluation.splits); rounded likewise",
        Below(0, 1));
  f.Add("heldout_clients", &D::heldout_clients, "share of clients that never trains", Below(0, 1));
  f.Add("heldout_tuning", &D::heldout_tuning,
        "share of a held-out client's rows that tunes it once it has joined (evaluation.heldout)",
        Below(0, 1))
      .Needs([](const D& data) { return data.heldout_clients > 0; },
             "data.heldout_clients above 0");
  AddResident(f);
  NotReadBy(
      f.Add("classes", &D::classes,
            "number of classes; labels must be below it; 0: as many as the data shows", AtLeast(0)),
      {"synthetic", "cifar10", "cifar100", "declared"});
  f.Add("input_shape", &D::input_shape,
        "shape that an example's values are read as, such as [1, 28, 28] for LEAF's FEMNIST; "
        "default: as stored",
        AtLeast(1));
  f.Add("class_names", &D::class_names,
        "names of the classes, in their order: where they are a CSV's or LIBSVM's labels, words or "
        "numbers, it numbers them; default: the data's own, sorted")
      .As(Role::kLabel);
  AddColumn(f, "label_column", &D::label_column,
            "csv: name or number of the label's column; default: the last");
  ReadBy(f.AddChoice("labels", &D::labels, {"auto", "numbers"},
                     "csv, libsvm: what labels are; auto: whole numbers and words are classes, and "
                     "numbers with fractions targets of a regression; numbers: all numbers are "
                     "targets"),
         {"csv", "libsvm"});
  AddColumn(f, "client_column", &D::client_column,
            "csv: name or number of the column that says whose row it is; \"none\": no column");
  ReadBy(f.Add("drop_columns", &D::drop_columns,
               "csv: columns that are neither label, client nor feature"),
         {"csv"});
  AddSeparator(f);
  ReadBy(f.Add("header", &D::header,
               "csv: whether a file's first line names the columns; default: where it has words "
               "alone, or the rows behind it say so"),
         {"csv"});
  ReadBy(f.Add("unreadable_rows", &D::unreadable_rows,
               "csv, libsvm: the largest share of rows that cannot be read and are left out; 0: "
               "none",
               Below(0, 1)),
         {"csv", "libsvm"});
  const size_t before = f.fields().size();
  f.AddSection("synthetic", &D::synthetic, SyntheticSection());
  for (size_t i = before; i < f.fields().size(); ++i) {
    f.fields()[i].Needs([](const D& data) { return data.source == "synthetic"; },
                        "data.source = \"synthetic\"");
  }
  return f;
}

Section<PartitionOptions> PartitionSection() {
  using P = PartitionOptions;
  Section<P> f;
  f.AddChoice("scheme", &P::scheme, Names(PartitionSchemes()),
              "how rows are divided among clients; `macaw partitions` lists the ways");
  AddClients(f);
  ForSchemes(
      f.Add("concentration", &P::concentration,
            "Dirichlet's parameter; sigma of lognormal; exponent of power-law", Above(0)),
      {"dirichlet-class", "dirichlet-client", "dirichlet-quantity", "lognormal", "power-law"});
  ForSchemes(f.Add("classes_per_client", &P::classes_per_client,
                   "k-classes: classes a client; shards: shards a client", AtLeast(1)),
             {"k-classes", "shards"});
  std::vector<std::string> sized = DividingSchemes();
  std::erase(sized, kHistogramScheme);
  ForSchemes(f.Add("min_size", &P::min_size,
                   "fewest rows of a client, met by moving rows from the largest", AtLeast(0)),
             sized);
  ForSchemes(f.AddPath("path", &P::path,
                       "file: JSON {\"client\": [row, …]}; histogram: rows of each class "
                       "and client, .npy, .npz or CSV")
                 .As(Role::kResult),
             {"file", kHistogramScheme});
  std::vector<std::string> drawn = DividingSchemes();
  std::erase(drawn, "sorted");
  ForSchemes(f.AddSeed("seed", &P::seed, "seed of the partition; default: run.seed"),
             std::move(drawn));
  f.Add("train_together", &P::train_together,
        "whether one client trains on all training rows; the rule pooled sets it")
      .Hidden([](const P& p) { return !p.train_together; });
  return f;
}

}  // namespace macaw::data
