#include "sdk/rules/load.h"

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "core/status.h"
#include "sdk/rules/halves.h"
#include "sdk/rules/interpreter.h"
#include "sdk/rules/schema.h"

namespace macaw::sdk::rules {
namespace {

absl::StatusOr<algorithms::Description> DescriptionOf(const Json& said,
                                                      std::shared_ptr<Interpreter> interpreter) {
  Rule rule;
  rule.name = said.at("name").get<std::string>();
  rule.seconds = said.at("seconds").get<double>();
  rule.proceeds = said.at("proceeds").get<bool>();
  rule.personal = said.at("personal").get<bool>();
  rule.begins = said.at("begins").get<bool>();
  rule.forgets = said.at("forgets").get<bool>();
  rule.passes = said.at("passes").get<bool>();
  rule.interpreter = std::move(interpreter);

  algorithms::Description description;
  description.name = rule.name;
  description.summary = said.at("summary").get<std::string>();
  description.remarks = said.at("remarks").get<std::string>();
  description.paper = said.at("paper").get<std::string>();
  for (const Json& parameter : said.at("parameters")) {
    MACAW_ASSIGN_OR_RETURN(algorithms::ParameterSpec spec, ParameterOf(parameter));
    description.parameters.push_back(std::move(spec));
  }
  description.has_personal_models = rule.personal;
  description.in_python = true;
  description.has_independent_state = said.at("independent_state").get<bool>();
  const TotalsUsed totals{.clients = said.at("uses_clients").get<bool>(),
                          .weight = said.at("uses_total_weight").get<bool>()};
  description.totals = [totals](const algorithms::Setup&) { return totals; };
  description.check = [rule](const algorithms::Setup& setup) -> absl::Status {
    MACAW_ASSIGN_OR_RETURN(const Opened opened, Open(rule, setup));
    return opened.refused;
  };
  description.schema =
      [rule](const algorithms::Setup& setup) -> absl::StatusOr<algorithms::Schema> {
    MACAW_ASSIGN_OR_RETURN(Opened opened, Open(rule, setup));
    return std::move(opened.schema.travels);
  };
  if (rule.passes) {
    // A rule whose process cannot be asked any more has no halves either, so its run ends there.
    description.passes = [rule](const algorithms::Setup& setup) {
      const absl::StatusOr<Opened> opened = Open(rule, setup);
      return opened.ok() ? opened->passes : algorithms::Passes(1);
    };
  }
  description.server = [rule](const algorithms::Setup& setup, FlatVector model) {
    return MakeServerHalf(rule, setup, std::move(model));
  };
  description.client = [rule](const algorithms::Setup& setup) {
    return MakeClientHalf(rule, setup);
  };
  return description;
}

}  // namespace

bool IsPython(absl::string_view path) { return absl::EndsWith(path, ".py"); }

absl::StatusOr<std::vector<algorithms::Description>> Load(const std::string& path,
                                                          absl::string_view text) {
  MACAW_ASSIGN_OR_RETURN(const std::shared_ptr<Interpreter> interpreter,
                         Interpreter::Start(path, text));
  std::vector<algorithms::Description> descriptions;
  for (const Json& said : interpreter->rules()) {
    MACAW_ASSIGN_OR_RETURN(algorithms::Description description, DescriptionOf(said, interpreter));
    descriptions.push_back(std::move(description));
  }
  return descriptions;
}

}  // namespace macaw::sdk::rules
