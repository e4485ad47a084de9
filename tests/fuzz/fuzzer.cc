// libFuzzer's entry: `macaw_fuzz --target=NAME [CORPUS FOLDER] [LIBFUZZER OPTIONS]`.
// `macaw_fuzz --list` prints the names, `--target=NAME --examples=FOLDER` writes valid examples.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/files.h"
#include "tests/fuzz/targets.h"

namespace {

bool (*feed)(absl::string_view bytes) = nullptr;

}  // namespace

// libFuzzer leaves alone what begins with two dashes.
extern "C" int LLVMFuzzerInitialize(const int* argc, char*** argv) {
  const std::vector<macaw::fuzz::Target> targets = macaw::fuzz::AllTargets();
  absl::string_view wanted, folder;
  for (int i = 1; i < *argc; ++i) {
    absl::string_view argument = (*argv)[i];
    if (absl::ConsumePrefix(&argument, "--target=")) wanted = argument;
    if (absl::ConsumePrefix(&argument, "--examples=")) folder = argument;
    if (argument != "--list") continue;
    for (const auto& target : targets) std::puts(target.name);
    std::exit(0);
  }
  for (const auto& target : targets) {
    if (wanted != target.name) continue;
    feed = target.feed;
    if (folder.empty()) continue;
    int k = 0;
    for (const std::string& example : target.examples()) {
      if (!macaw::AtomicWriteFile(absl::StrCat(folder, "/example-", k++), example).ok())
        std::exit(1);
    }
    std::exit(0);
  }
  if (feed != nullptr) return 0;
  std::fprintf(stderr, "which decoder? --target=NAME with a name of --list\n");
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  feed({reinterpret_cast<const char*>(data), size});
  return 0;
}
