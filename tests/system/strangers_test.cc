// What callers that nobody knows cost a real server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <iostream>
#include <list>
#include <string>

#include "core/files.h"
#include "testing/program.h"
#include "testing/raw_caller.h"
#include "testing/temporary_folder.h"

namespace macaw {
namespace {

using testing::HasSubstr;
using testing_support::Program;
using testing_support::RunShell;
using wire::RawCaller;

uint64_t MemoryOf(pid_t process) {  // bytes
  std::ifstream file("/proc/" + std::to_string(process) + "/statm");
  uint64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

TEST(StrangersAtAServer, FillNoMemoryAndAreInTheAuditLog) {
  ::signal(SIGPIPE, SIG_IGN);
  const testing_support::TemporaryFolder folder;
  const std::string authority = folder / "authority", run = folder / "run",
                    config = folder / "plan.toml";
  ASSERT_EQ(RunShell(MACAW_BIN_DIR "/macaw pki init --dir " + authority).exit, 0);
  ASSERT_EQ(
      RunShell(MACAW_BIN_DIR "/macaw plan " MACAW_SOURCE_DIR "/examples/synthetic.toml --out " +
               config)
          .exit,
      0);
  Program server("macaw-server", {"--config", config, "--run-dir", run, "--listen", "127.0.0.1:0",
                                  "--authority", authority});
  ASSERT_TRUE(server.WaitFor("listening on")) << server.text();
  std::string address = *ReadFile(run + "/address");
  address = address.substr(0, address.find('\n'));

  const uint64_t before = MemoryOf(server.pid());
  uint64_t sent = 0;
  std::list<RawCaller> callers;
  // 4 connections of 64 requests of 4 MiB without their last 100 bytes: 1 GiB, if it is taken.
  for (int i = 0; i < 4; ++i) {
    RawCaller& caller = callers.emplace_back(address);
    ASSERT_TRUE(caller.open());
    constexpr uint32_t kMessage = 4 << 20;
    for (int stream = 0; stream < 64 && caller.open(); ++stream) {
      caller.SendPartOfMessage(caller.Begin("/macaw.v1.Enrolment/Enrol"), kMessage - 100, kMessage);
    }
    caller.ReadToTheEnd();
    sent += caller.sent();
  }
  const uint64_t after = MemoryOf(server.pid());
  EXPECT_LT(after, before + (uint64_t{100} << 20)) << sent << " bytes were sent";
  RecordProperty("sent_bytes", std::to_string(sent));
  std::cout << "memory " << (before >> 20) << " to " << (after >> 20) << " MiB, sent "
            << (sent >> 20) << " MiB\n";
  server.Signal(SIGTERM);
  server.Wait();
  EXPECT_THAT(*ReadFile(authority + "/audit.jsonl"), HasSubstr("bytes before a call"));
  EXPECT_EQ(RunShell(MACAW_BIN_DIR "/macaw audit verify " + authority).exit, 0);
}

}  // namespace
}  // namespace macaw
