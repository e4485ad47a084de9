#include "algorithms/around/counted_state.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace macaw::algorithms {

absl::Status CheckCountedState(const Description& rule, const Schema& schema,
                               absl::string_view change) {
  if (schema.state.empty() || rule.has_independent_state || rule.state_follows_sent)
    return absl::OkStatus();
  const auto name = [](std::string* out, const NamedLayout& item) {
    absl::StrAppend(out, item.name);
  };
  return absl::InvalidArgumentError(absl::StrCat(
      "the clients of ", rule.name, " keep a state that may mirror what they send (",
      absl::StrJoin(schema.state, ", ", name), "). ", change,
      ", so the two no longer agree and the run converges to a wrong model. ",
      rule.in_python
          ? "A rule in Python whose state is independent of what it sends says so "
            "(has_independent_state = True); one whose state has to follow what was counted is "
            "written in C++ (ClientAlgorithm::Sent)"
          : "A rule that makes its state follow what was sent says so (state_follows_sent), and one "
            "whose state is independent of that, too (has_independent_state)"));
}

bool HasStateThatFollows(const Description& rule, const Schema& schema) {
  return rule.state_follows_sent && !schema.state.empty();
}

}  // namespace macaw::algorithms
