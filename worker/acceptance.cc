#include "worker/acceptance.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status.h"

namespace macaw::worker {
namespace {

using settings::AtLeast;
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

}  // namespace

Section<AcceptConfig> AcceptSection() {
  using A = AcceptConfig;
  Section<A> f;
  f.Add("algorithms", &A::algorithms, "names of the rules that this node trains for; default: all");
  f.Add("models", &A::models, "names of the models that it trains; default: all");
  f.Add("max_parameters", &A::max_parameters, "of a model; 0: any number", AtLeast(0));
  f.Add("max_steps", &A::max_steps, "local steps of a client in a round; 0: any number",
        AtLeast(0));
  for (settings::Field<A>& field : f.fields()) field.role = Role::kCompute;
  return f;
}

uint64_t NominalSteps(const LocalConfig& local, uint64_t rows) {
  if (local.steps > 0) return local.steps;
  const uint64_t batch = local.batch_size > 0 ? local.batch_size : std::max<uint64_t>(rows, 1);
  const uint64_t batches = local.drop_last ? rows / batch : (rows + batch - 1) / batch;
  return local.epochs * batches;
}

absl::Status CheckAccepted(const AcceptConfig& accept, const RunPlan& run, uint64_t parameters,
                           uint64_t rows) {
  MACAW_RETURN_IF_ERROR(
      CheckListed("accept.algorithms", accept.algorithms, "algorithm", run.algorithm.name));
  MACAW_RETURN_IF_ERROR(CheckListed("accept.models", accept.models, "model", run.model.name));
  MACAW_RETURN_IF_ERROR(CheckMost("accept.max_parameters", accept.max_parameters,
                                  "the model's parameters are ", parameters));
  return CheckMost("accept.max_steps", accept.max_steps, "a client's local steps in a round are ",
                   NominalSteps(run.local, rows));
}

}  // namespace macaw::worker
