#include "tests/fuzz/targets.h"

namespace macaw::fuzz {

std::vector<Target> AllTargets() {
  std::vector<Target> all;
  for (const std::vector<Target>& some :
       {WireTargets(), IdentityTargets(), FileTargets(), ProgramTargets()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

}  // namespace macaw::fuzz
