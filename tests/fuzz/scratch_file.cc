#include "tests/fuzz/scratch_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "tests/fuzz/targets.h"

namespace macaw::fuzz {

ScratchFile& ScratchFile::Once() {
  static auto* const file = new ScratchFile();
  return *file;
}

ScratchFile::ScratchFile()
    : fd_(::memfd_create("fuzz", MFD_CLOEXEC)), path_(absl::StrCat("/proc/self/fd/", fd_.get())) {
  MACAW_FUZZ_EXPECT(fd_.open());
}

void ScratchFile::Fill(absl::string_view bytes) {
  MACAW_FUZZ_EXPECT(::ftruncate(fd_.get(), 0) == 0);
  MACAW_FUZZ_EXPECT(::pwrite(fd_.get(), bytes.data(), bytes.size(), 0) ==
                    static_cast<ssize_t>(bytes.size()));
}

}  // namespace macaw::fuzz
