#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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
}

// "auto" or a boolean.
void AddResident(Section<DataOptions>& f) {
  Field<DataOptions>& field =
      f.AddChoice("resident", &DataOptions::resident, {"auto", "true", "false"},
                  "kept in memory, or read and generated on demand")
          .Expecting("\"auto\" | true | false")
          .As(Role::kCompute);
  field.set = [set = field.set](DataOptions& data, const Value& value) {
    const bool* flag = value.As<bool>();
    return set(data, flag == nullptr ? value : Value{std::string(*flag ? "true" : "false")});
  };
  field.get = [](const DataOptions& data) -> std::optional<Value> {
    if (data.resident == "auto") return Value{data.resident};
    return Value{data.resident == "true"};
  };
}

// One character, or "tab". Cells hold letters, digits and signs of numbers, so these separate none.
void AddSeparator(Section<DataOptions>& f) {
  Field<DataOptions>& field =
      f.Add("separator", &DataOptions::separator,
            "csv: what stands between cells, \"tab\" or a character; default: the comma, semicolon "
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
  field.Needs([](const DataOptions& data) { return data.source == "csv"; },
              "data.source = \"csv\"");
}

// The number that a run has is in its files, and that of a histogram's clients only if it is given.
void AddClients(Section<PartitionOptions>& f) {
  using P = PartitionOptions;
  Field<P>& field =
      f.Add("clients", &P::clients,
            "population; of a histogram: so many of its clients, drawn (default: all)", AtLeast(1));
  field.get = [](const P& partition) -> std::optional<Value> {
    return Value{
        static_cast<int64_t>(partition.clients == 0 ? kDefaultClients : partition.clients)};
  };
  field.Hidden([](const P& partition) {
    return partition.scheme == kHistogramScheme && partition.clients == 0;
  });
}

Section<SyntheticOptions> SyntheticSection() {
  using S = SyntheticOptions;
  Section<S> f;
  f.Add("clients", &S::clients, "population", AtLeast(1));
  f.Add("alpha", &S::alpha, "standard deviation of the clients' model means", AtLeast(0));
  f.Add("beta", &S::beta, "standard deviation of the clients' feature means", AtLeast(0));
  f.Add("max_size", &S::max_size, "cap on a client's examples; 0: none", AtLeast(0));
  f.Add("iid", &S::iid, "one model for everybody");
  return f;
}

}  // namespace

Section<DataOptions> DataSection(const std::vector<std::string>& more_sources) {
  using D = DataOptions;
  Section<D> f;
  std::vector<std::string> sources = Names(DataSources());
  sources.insert(sources.end(), more_sources.begin(), more_sources.end());
  f.AddChoice("source", &D::source, std::move(sources), "the form of the examples");
  f.AddPath("path", &D::path, "file or folder").As(Role::kResult);
  f.AddPath("test_path", &D::test_path, "a second file of the same kind, for tests")
      .As(Role::kResult);
  f.AddSeed("seed", &D::seed, "of splits and generated data; default: run.seed");
  f.Add("test_fraction", &D::test_fraction,
        "of all rows, set aside centrally where the source has no test set", Below(0, 1));
  f.Add("central_val_fraction", &D::central_val_fraction,
        "of the training rows (of all, where test_fraction is cut), set aside centrally before the "
        "partition, to choose by: val_*",
        Below(0, 1));
  f.Add("client_test_fraction", &D::client_test_fraction,
        "of each client's rows, for tests of its own (evaluation.clients)", Below(0, 1));
  f.Add("val_fraction", &D::val_fraction,
        "of each client's rows, for validation (evaluation.splits)", Below(0, 1));
  f.Add("heldout_clients", &D::heldout_clients, "fraction of clients that never train",
        Below(0, 1));
  f.Add("heldout_tuning", &D::heldout_tuning,
        "of each such client's rows, to tune it on once it has joined (evaluation.heldout)",
        Below(0, 1));
  AddResident(f);
  f.Add("classes", &D::classes, "labels must be below; 0: as many as the data shows", AtLeast(0));
  f.Add("input_shape", &D::input_shape,
        "take an example's values for such an array, [1, 28, 28] for LEAF's FEMNIST; default: as "
        "stored",
        AtLeast(1));
  f.Add("class_names", &D::class_names,
        "for people, in the order of the classes; default: the data's own words")
      .As(Role::kLabel);
  AddColumn(f, "label_column", &D::label_column,
            "csv: name or number of the label's column; default: the last");
  AddColumn(f, "client_column", &D::client_column,
            "csv: likewise, of the column that says whose row it is; \"none\": no column does");
  f.Add("drop_columns", &D::drop_columns,
        "csv: columns that are neither label, client nor feature");
  AddSeparator(f);
  f.Add("unreadable_rows", &D::unreadable_rows,
        "csv, libsvm: the largest share of rows that cannot be read and are left out; 0: none",
        Below(0, 1));
  const size_t before = f.fields().size();
  f.AddSection("synthetic", &D::synthetic, SyntheticSection());
  for (size_t i = before; i < f.fields().size(); ++i) {
    // They may stand in the file of a run of other data.
    f.fields()[i].Needs([](const D& data) { return data.source == "synthetic"; });
  }
  return f;
}

Section<PartitionOptions> PartitionSection() {
  using P = PartitionOptions;
  Section<P> f;
  f.AddChoice("scheme", &P::scheme, Names(PartitionSchemes()),
              "who gets which rows; `macaw partitions`");
  AddClients(f);
  f.Add("concentration", &P::concentration,
        "Dirichlet's parameter; sigma of lognormal; exponent of power-law", Above(0));
  f.Add("classes_per_client", &P::classes_per_client, "of k-classes; shards a client for shards",
        AtLeast(1));
  f.Add("min_size", &P::min_size, "fewest rows of a client, met by moving rows from the largest",
        AtLeast(0));
  f.AddPath("path", &P::path,
            "scheme = file: JSON {\"client\": [row, …]}; histogram: rows of each class and client, "
            ".npy, .npz or CSV")
      .As(Role::kResult);
  f.AddSeed("seed", &P::seed, "default: run.seed");
  f.Add("train_together", &P::train_together,
        "one client trains on all training rows; algorithm pooled sets it");
  return f;
}

}  // namespace macaw::data
