#include "worker/acceptance.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/status.h"
#include "plan/local_steps.h"
#include "training/api/round_local.h"
#include "worker/hours.h"

namespace macaw::worker {
namespace {

using settings::AtLeast;
using settings::Between;
using settings::Role;
using settings::Section;

absl::Status CheckListed(const char* key, const std::vector<std::string>& list, const char* what,
                         const std::string& found) {
  if (list.empty() || std::ranges::find(list, found) != list.end()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("the ", what, " is \"", found, "\", and ", key,
                                                  " is ", absl::StrJoin(list, ", ")));
}

absl::Status CheckMost(const char* key, uint64_t most, const char* what, uint64_t found) {
  if (most == 0 || found <= most) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(what, found, ", and ", key, " is ", most));
}

// A list of strings, or one string from which `split` makes the list.
template <typename Split>
void OrOneString(settings::Field<AcceptConfig>& field, const Split& split) {
  field.set = [set = field.set, split](AcceptConfig& accept, const settings::Value& value) {
    const std::string* const text = value.As<std::string>();
    if (text == nullptr) return set(accept, value);
    settings::Array list;
    for (std::string& item : split(*text)) list.push_back(settings::Value{std::move(item)});
    return !list.empty() && set(accept, settings::Value{std::move(list)});
  };
}

// Only times of day.
void CheckHours(settings::Field<AcceptConfig>& field) {
  field.set = [set = field.set](AcceptConfig& accept, const settings::Value& value) {
    AcceptConfig changed = accept;
    if (!set(changed, value)) return false;
    const bool good = std::ranges::all_of(
        changed.hours, [](const std::string& text) { return ParseHours(text).ok(); });
    if (good) accept = std::move(changed);
    return good;
  };
}

}  // namespace

Section<AcceptConfig> AcceptSection() {
  using A = AcceptConfig;
  Section<A> f;
  f.Add("algorithms", &A::algorithms, "names of the rules that this node trains for; default: all");
  f.Add("models", &A::models, "names of the models that this node trains; default: all");
  f.Add("max_parameters", &A::max_parameters,
        "largest model that this node trains, in parameters; 0: any", AtLeast(0));
  f.Add("max_steps", &A::max_steps, "most local steps of a client in a round; 0: any number",
        AtLeast(0));
  OrOneString(f.Add("run_when", &A::run_when,
                    "a program with its arguments, started without a shell: the node works while "
                    "its exit code is 0"),
              [](const std::string& text) {
                return std::vector<std::string>(
                    absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty()));
              });
  f.fields().back().Expecting("a command: a list of strings, or a string that is cut at spaces");
  f.Add("run_when_every", &A::run_when_every,
        "shortest time between two calls of accept.run_when, in seconds", Between(1, 1e9))
      .Needs([](const A& accept) { return !accept.run_when.empty(); }, "accept.run_when");
  OrOneString(f.Add("hours", &A::hours,
                    "times of day at which the node works, on its own clock; default: always"),
              [](const std::string& text) { return std::vector<std::string>{text}; });
  CheckHours(
      f.fields().back().Expecting("a time of day such as \"22:00-06:00\", or a list of them"));
  f.Add("max_bytes_up_a_day", &A::max_bytes_up_a_day,
        "bytes that the node sends from midnight to midnight on its own clock; 0: no limit",
        AtLeast(0));
  f.Add("max_bytes_down_a_day", &A::max_bytes_down_a_day,
        "bytes that the node receives from midnight to midnight on its own clock; 0: no limit",
        AtLeast(0));
  for (settings::Field<A>& field : f.fields()) field.role = Role::kCompute;
  return f;
}

uint64_t MostSteps(const RunPlan& run, const Demand& demand) {
  return StepsOf(training::MostLocal(run), demand.rows, demand.joins);
}

absl::Status CheckAccepted(const AcceptConfig& accept, const RunPlan& run, const Demand& demand) {
  MACAW_RETURN_IF_ERROR(
      CheckListed("accept.algorithms", accept.algorithms, "algorithm", run.algorithm.name));
  MACAW_RETURN_IF_ERROR(CheckListed("accept.models", accept.models, "model", run.model.name));
  MACAW_RETURN_IF_ERROR(CheckMost("accept.max_parameters", accept.max_parameters,
                                  "the model's parameters are ", demand.parameters));
  MACAW_RETURN_IF_ERROR(CheckMost("accept.max_steps", accept.max_steps,
                                  "a client's local steps in a round are ",
                                  MostSteps(run, demand)));
  MACAW_RETURN_IF_ERROR(CheckMost("accept.max_bytes_up_a_day", accept.max_bytes_up_a_day,
                                  "the bytes that a client sends in a round are ",
                                  demand.bytes_up));
  return CheckMost("accept.max_bytes_down_a_day", accept.max_bytes_down_a_day,
                   demand.base_bytes > 0
                       ? "the bytes that a client receives in its first round, with the model's "
                         "frozen tensors, are "
                       : "the bytes that a client receives in a round are ",
                   demand.bytes_down + demand.base_bytes);
}

}  // namespace macaw::worker
