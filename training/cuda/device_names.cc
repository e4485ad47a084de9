#include "training/cuda/device_names.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace macaw::training {

absl::StatusOr<std::vector<int>> ChooseGpus(std::span<const std::string> names, int count) {
  std::vector<int> chosen;
  if (names.empty()) {
    chosen.resize(static_cast<size_t>(count));
    std::iota(chosen.begin(), chosen.end(), 0);
    return chosen;
  }
  for (const std::string& name : names) {
    absl::string_view digits = name;
    uint32_t index = 0;
    if (!absl::ConsumePrefix(&digits, "cuda:") || !absl::SimpleAtoi(digits, &index)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "workers.devices: \"", name, "\" is no GPU: write \"cuda:0\" for the first one"));
    }
    if (index >= static_cast<uint32_t>(count)) {
      return absl::InvalidArgumentError(
          absl::StrCat("workers.devices: there is no ", name, "; this process can see ", count,
                       " GPU", count == 1 ? "" : "s", ", the last is cuda:", count - 1,
                       " (`macaw doctor` lists them; CUDA_VISIBLE_DEVICES hides some)"));
    }
    if (std::ranges::find(chosen, static_cast<int>(index)) != chosen.end()) {
      return absl::InvalidArgumentError(absl::StrCat("workers.devices: ", name, " is there twice"));
    }
    chosen.push_back(static_cast<int>(index));
  }
  return chosen;
}

}  // namespace macaw::training
