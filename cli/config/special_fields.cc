#include "cli/config/special_fields.h"

#include <iterator>

#include "cli/config/field_types.h"

namespace macaw::cli {

Field DTypeField() {
  Field field{.path = "run.dtype",
              .help = "what models and updates are computed in",
              .expected = "\"float32\" | \"float64\"",
              .choices = {"float32", "float64"}};
  field.set = [](Config& config, const Value& value) {
    const std::string* word = value.As<std::string>();
    if (word == nullptr) return false;
    const auto dtype = ParseDType(*word == "f32" ? "float32" : *word == "f64" ? "float64" : *word);
    if (dtype.ok()) config.run.dtype = *dtype;
    return dtype.ok();
  };
  field.get = [](const Config& config) { return Value{std::string(Name(config.run.dtype))}; };
  field.reset = [](Config& config) { config.run.dtype = Config().run.dtype; };
  return field;
}

namespace {
// Indexed by WeightPolicy.
constexpr const char* kWeightPolicies[] = {"examples", "uniform", "tokens"};
}  // namespace

Field WeightField() {
  Field field{.path = "cohort.weight",
              .help = "a client's weight in the mean: its training examples, 1, or its tokens",
              .expected = "\"examples\" | \"uniform\" | \"tokens\"",
              .choices = {"examples", "uniform", "tokens"}};
  field.set = [](Config& config, const Value& value) {
    const std::string* word = value.As<std::string>();
    if (word == nullptr) return false;
    for (size_t policy = 0; policy < std::size(kWeightPolicies); ++policy) {
      if (*word != kWeightPolicies[policy]) continue;
      config.run.cohort.weight = static_cast<WeightPolicy>(policy);
      return true;
    }
    return false;
  };
  field.get = [](const Config& config) {
    return Value{std::string(kWeightPolicies[static_cast<size_t>(config.run.cohort.weight)])};
  };
  field.reset = [](Config& config) { config.run.cohort.weight = Config().run.cohort.weight; };
  return field;
}

// "auto" or a boolean.
Field ResidentField() {
  Field field = Choice("data.resident", AT(data.resident), {"auto", "true", "false"},
                       "kept in memory, or read and generated on demand");
  field.expected = "\"auto\" | true | false";
  field.set = [set = field.set](Config& config, const Value& value) {
    const bool* flag = value.As<bool>();
    return set(config, flag == nullptr ? value : Value{std::string(*flag ? "true" : "false")});
  };
  field.get = [](const Config& config) {
    if (config.data.resident == "auto") return Value{config.data.resident};
    return Value{config.data.resident == "true"};
  };
  return field;
}

namespace {

// A column's name, or its number from 0.
template <typename At>
Field ColumnField(std::string path, At at, std::string help) {
  Field field = Plain(std::move(path), at, std::move(help));
  field.expected = "a name or a number";
  field.set = [at](Config& config, const Value& value) {
    if (const int64_t* number = value.As<int64_t>(); number != nullptr && *number >= 0) {
      at(config) = absl::StrCat(*number);
      return true;
    }
    const std::string* name = value.As<std::string>();
    if (name == nullptr) return false;
    at(config) = *name;
    return true;
  };
  return field;
}

}  // namespace

Field LabelColumnField() {
  return ColumnField("data.label_column", AT(data.label_column),
                     "csv: name or number of the label's column; default: the last");
}

Field ClientColumnField() {
  return ColumnField("data.client_column", AT(data.client_column),
                     "csv: likewise, of the column that says whose row it is; \"none\": no "
                     "column does");
}

Field StopAtLeast() {
  Field field = Plain("run.stop.at_least", AT(output.stop.at_least), "… reaches this value");
  field.set = [set = field.set](Config& config, const Value& value) {
    const bool taken = set(config, value);
    config.output.stop.has_at_least = config.output.stop.has_at_least || taken;
    return taken;
  };
  return HiddenIf(std::move(field),
                  [](const Config& config) { return !config.output.stop.has_at_least; });
}

// "train": every client's training rows, and the objective over all of them.
Field SplitsField() {
  Field field = List("evaluation.splits", AT(splits),
                     "which rows are evaluated; train: those of all clients, and the objective");
  field.expected = "a list of \"test\" and \"train\"";
  field.choices = {"test", "train"};
  field.set = [set = field.set](Config& config, const Value& value) {
    const Array* array = value.As<Array>();
    if (array == nullptr || array->empty() || array->size() > 2) return false;
    bool test = false, train = false;
    for (const Value& item : *array) {
      const std::string* word = item.As<std::string>();
      if (word == nullptr || (*word != "test" && *word != "train")) return false;
      (*word == "test" ? test : train) = true;
    }
    if (test + train != static_cast<int>(array->size())) return false;  // a word is there twice
    config.run.evaluation.train = train;
    return set(config, value);
  };
  field.reset = [reset = field.reset](Config& config) {
    reset(config);
    config.splits = Config().splits;
    config.run.evaluation.train = false;
  };
  return field;
}

}  // namespace macaw::cli
