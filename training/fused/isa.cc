#include "training/fused/isa.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace macaw::training::fused {

absl::StatusOr<Isa> ChooseIsa(absl::string_view wanted) {
  const std::vector<Isa> isas = SupportedIsas();
  if (wanted == "auto") return isas.front();
  for (const Isa isa : isas) {
    if (Name(isa) == wanted) return isa;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "workers.instruction_set is \"", wanted, "\"; this processor can run ",
      absl::StrJoin(isas, ", ",
                    [](std::string* out, Isa isa) { absl::StrAppend(out, Name(isa)); })));
}

}  // namespace macaw::training::fused
