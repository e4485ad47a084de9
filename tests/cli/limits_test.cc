// What a process says when it meets the limits of its machine.
#include "cli/process/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "cli/process/exit.h"

namespace macaw::cli {
namespace {

using testing::ExitedWithCode;
using testing::KilledBySignal;

template <typename Exception>
[[noreturn]] void ThrowOnAThread(const Exception& exception) {
  ExplainEndings("macaw-test");
  std::thread([&] { throw exception; }).join();
  std::abort();
}

TEST(UncaughtExceptionDeathTest, MemoryThatRanOutIsOneLineAndNoCrash) {
  EXPECT_EXIT(ThrowOnAThread(std::bad_alloc()), ExitedWithCode(kExitFailed),
              "^macaw-test: error: out of memory: [^\n]*\n$");
}

TEST(UncaughtExceptionDeathTest, AThreadThatCannotBeStartedNamesTheLimit) {
  EXPECT_EXIT(ThrowOnAThread(std::system_error(
                  std::make_error_code(std::errc::resource_unavailable_try_again))),
              ExitedWithCode(kExitFailed), "^macaw-test: error: [^\n]*ulimit -u[^\n]*\n$");
}

TEST(UncaughtExceptionDeathTest, AProgrammersErrorIsNamedAndLeavesACore) {
  EXPECT_EXIT(ThrowOnAThread(std::logic_error("an impossible state")), KilledBySignal(SIGABRT),
              "macaw-test: error: an impossible state");
}

[[noreturn]] void TryWithOpenFiles(rlim_t soft, rlim_t hard, uint64_t connections = 0) {
  const rlimit limit{.rlim_cur = soft, .rlim_max = hard};
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) std::abort();
  const absl::Status status = EnsureOpenFiles(connections);
  rlimit after{};
  ::getrlimit(RLIMIT_NOFILE, &after);
  std::fprintf(stderr, "%s; may open %d\n", std::string(status.message()).c_str(),
               static_cast<int>(after.rlim_cur));
  std::exit(status.ok() ? 0 : 1);
}

TEST(OpenFilesDeathTest, TooFewAreRefusedByNumberAndMoreAreTakenWhereTheyMay) {
  EXPECT_EXIT(TryWithOpenFiles(9, 9), ExitedWithCode(1), "9 files open here.*ulimit -n");
  EXPECT_EXIT(TryWithOpenFiles(20, 1000), ExitedWithCode(0), "may open 1000");
}

TEST(OpenFilesDeathTest, AServerIsRefusedIfItsWorkersCouldNeverAllConnect) {
  EXPECT_EXIT(TryWithOpenFiles(20, 1000, 3000), ExitedWithCode(1),
              "1000 files.*3000 workers.*3304");
  EXPECT_EXIT(TryWithOpenFiles(20, 3303, 3000), ExitedWithCode(1), "3303 files");
  EXPECT_EXIT(TryWithOpenFiles(20, 3304, 3000), ExitedWithCode(0), "may open 3304");
  EXPECT_EXIT(TryWithOpenFiles(20, 100, 10), ExitedWithCode(0), "may open 100");
}

}  // namespace
}  // namespace macaw::cli
