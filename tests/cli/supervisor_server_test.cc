// Supervise: what follows from how the server fares, and from signals.
#include "absl/strings/match.h"
#include "tests/cli/supervisor_fixture.h"

namespace macaw::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(SupervisorTest, TellsHowTheServerDied) {
  const auto end = Supervise(Options("echo 'error: disk full' >&2; exit 3", "exec sleep 1000"));
  EXPECT_EQ(end.status().message(),
            absl::StrCat("macaw-server: exit code 3: error: disk full (", dir_, "/server.log)"));
}

TEST_F(SupervisorTest, EndsTheRunOnceTheServerHasBeenStoppedForTooLong) {
  SupervisorOptions options =
      Options("trap 'echo kept > DIR/kept; exit 130' INT; echo a > READY; kill -STOP $$", "");
  options.patience = std::chrono::milliseconds(1);
  const auto end = Supervise(options);
  EXPECT_THAT(std::string(end.status().message()), HasSubstr("macaw-server has been stopped"));
  EXPECT_THAT(said_, Contains(AllOf(HasSubstr("macaw-server is stopped; waiting"),
                                    HasSubstr("kill -CONT"))));
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/kept")) << "it may keep what is finished";
}

TEST_F(SupervisorTest, EndsTheWorkersWhenTheServerDies) {
  alive_ = *MakePipe();
  const auto end = Supervise(Options("echo a > READY; read line < DIR/fifo; kill -9 $$",
                                     "trap '' TERM INT; echo up > DIR/fifo; sleep 1000", 2));
  EXPECT_THAT(std::string(end.status().message()), HasSubstr("macaw-server: killed by signal 9"));
  alive_.write.Close();
  AwaitNoChildLeft();
}

TEST_F(SupervisorTest, StartsAServerAgainThatWasKilledWhereItsWorkersLookForIt) {
  // Both servers say how they were started. The first dies in the middle of a row; the worker lives
  // on.
  SupervisorOptions options = Options(R"(echo AGAIN BEFORE >> DIR/servers
                                         if [ AGAIN = first ]; then
                                           echo unix:/here > READY
                                           read up < DIR/fifo
                                           echo '{"round": 1}' > REPORT
                                           printf '{"rou' > REPORT
                                           kill -9 $$
                                         fi
                                         echo BEFORE > READY
                                         echo '{"round": 1}' > REPORT
                                         echo '{"round": 2}' > REPORT)",
                                      "echo up >> DIR/workers; echo up > DIR/fifo; sleep 1000");
  options.restart_server = true;
  const auto end = Supervise(options);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(*end, SupervisedEnd::kFinished);
  EXPECT_EQ(*ReadFile(dir_ + "/servers"), "first\nagain unix:/here\n");
  EXPECT_EQ(*ReadFile(dir_ + "/workers"), "up\n") << "one worker, started once";
  EXPECT_THAT(rows_, ElementsAre(R"({"round": 1})", R"({"round": 1})", R"({"round": 2})"));
  EXPECT_THAT(said_, ElementsAre(AllOf(HasSubstr("macaw-server: killed by signal 9"),
                                       HasSubstr("starting it again"))));
}

TEST_F(SupervisorTest, StartsAServerAgainThatDiedBeforeItListened) {
  SupervisorOptions options = Options(R"([ AGAIN = again ] || kill -SEGV $$
                                         echo a > READY; read up < DIR/fifo)",
                                      "echo up > DIR/fifo");
  options.restart_server = true;
  const auto end = Supervise(options);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_THAT(said_, ElementsAre(HasSubstr("killed by signal 11")));
}

TEST_F(SupervisorTest, GivesUpOnAServerThatDiesAgainAndAgainAndRepeatsItsRows) {
  SupervisorOptions options = Options(R"(echo x >> DIR/starts; echo a > READY
                                         echo '{"round": 1}' > REPORT; kill -9 $$)",
                                      "sleep 1000");
  options.restart_server = true;
  const auto end = Supervise(options);
  EXPECT_TRUE(absl::IsAborted(end.status()));
  EXPECT_THAT(std::string(end.status().message()),
              AllOf(HasSubstr("macaw-server died 6 times without a round being finished"),
                    HasSubstr("killed by signal 9"), HasSubstr(dir_ + "/server.log")));
  EXPECT_EQ(*ReadFile(dir_ + "/starts"), "x\nx\nx\nx\nx\nx\n");
}

TEST_F(SupervisorTest, DoesNotStartAServerAgainThatFailedWithAReason) {
  for (const char* code : {"1", "2"}) {
    SupervisorOptions options =
        Options(absl::StrCat("echo 'macaw-server: error: the disk is full' >&2; exit ", code), "");
    options.restart_server = true;
    EXPECT_THAT(std::string(Supervise(options).status().message()), HasSubstr("the disk is full"));
  }
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(SupervisorTest, TellsAServerThatRefusesFromOneThatDied) {
  const auto end_of = [&](const std::string& how) {
    return Supervise(Options("echo a > READY; " + how, "exec sleep 1000")).status();
  };
  EXPECT_TRUE(absl::IsFailedPrecondition(end_of("exit 2"))) << "it would refuse again";
  EXPECT_TRUE(absl::IsAborted(end_of("exit 1")));
  EXPECT_TRUE(absl::IsAborted(end_of("kill -9 $$")));
}

TEST_F(SupervisorTest, CtrlCEndsARunWhoseServerIsNotBackYet) {
  MakePipes();
  SupervisorOptions options = Options("echo a > READY; kill -9 $$", "sleep 1000");
  options.restart_server = true;
  const pid_t pid = Fork(options);
  // By the third death the next start is half a second away.
  for (int death = 0; death < 3; ++death)
    EXPECT_THAT(NextLineOf(said_pipe_), HasSubstr("starting it again"));
  ::kill(pid, SIGINT);
  std::string line = NextLineOf(said_pipe_);
  while (absl::StrContains(line, "starting it again"))  // it died once more before the signal came
    line = NextLineOf(said_pipe_);
  EXPECT_THAT(line, HasSubstr("stopping"));
  EXPECT_EQ(ExitCodeOf(pid), static_cast<int>(SupervisedEnd::kInterrupted));
  AwaitNoChildLeft();
}

TEST_F(SupervisorTest, StopsTheServerWhenAServiceIsBeyondHelp) {
  // It has something to do once a worker runs: the server listens for signals by then.
  const Fd fifo(::open((dir_ + "/fifo").c_str(), O_RDWR | O_CLOEXEC));
  SupervisorOptions options = Options(
      "trap 'echo stopped > DIR/stopped; exit 130' INT; echo a > READY; sleep 1000 & wait $!",
      "echo up > DIR/fifo; exec sleep 1000");
  options.services.push_back(
      {.fd = [&] { return fifo.get(); },
       .attend = [] { return absl::UnavailableError("the service is gone"); }});
  EXPECT_EQ(Supervise(options).status().message(), "the service is gone");
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/stopped")) << "it may keep what is finished";
}

TEST_F(SupervisorTest, AsksTheServerToStopOnCtrlC) {
  MakePipes();
  // The signal comes when the worker runs; the server then exits as one that has kept everything.
  const pid_t pid =
      Fork(Options("trap 'exit 130' INT; echo a > READY; sleep 1000 & wait $!",
                   absl::StrCat("echo up > /dev/fd/", alive_.write.get(), "; exec sleep 1000")));
  char up[3];
  ASSERT_EQ(::read(alive_.read.get(), up, 3), 3);
  ::kill(pid, SIGINT);
  EXPECT_THAT(NextLineOf(said_pipe_), HasSubstr("stopping"));
  EXPECT_EQ(ExitCodeOf(pid), static_cast<int>(SupervisedEnd::kInterrupted));
  AwaitNoChildLeft();
}

TEST_F(SupervisorTest, GoesOnAfterAHangUpUnderNohup) {
  MakePipes();
  const auto before = ::signal(SIGHUP, SIG_IGN);
  const pid_t pid =
      Fork(Options("echo a > READY; read line < DIR/fifo",
                   absl::StrCat("echo up > /dev/fd/", alive_.write.get(), "; exec sleep 1000")));
  ::signal(SIGHUP, before);
  char up[3];
  ASSERT_EQ(::read(alive_.read.get(), up, 3), 3);
  ::kill(pid, SIGHUP);
  const Fd fifo(::open((dir_ + "/fifo").c_str(), O_RDWR | O_CLOEXEC));
  WriteLine(fifo.get(), "the server may end");
  EXPECT_EQ(ExitCodeOf(pid), static_cast<int>(SupervisedEnd::kFinished));
  AwaitNoChildLeft();
}

TEST_F(SupervisorTest, KillsOnASecondCtrlC) {
  MakePipes();
  const pid_t pid =
      Fork(Options("trap '' INT TERM; echo a > READY; sleep 1000 & wait $!",
                   absl::StrCat("echo up > /dev/fd/", alive_.write.get(), "; exec sleep 1000")));
  char up[3];
  ASSERT_EQ(::read(alive_.read.get(), up, 3), 3);
  ::kill(pid, SIGINT);
  EXPECT_THAT(NextLineOf(said_pipe_), HasSubstr("stopping"));
  ::kill(pid, SIGINT);
  EXPECT_THAT(NextLineOf(said_pipe_), HasSubstr("killing"));
  EXPECT_EQ(ExitCodeOf(pid), static_cast<int>(SupervisedEnd::kKilled));
  AwaitNoChildLeft();
}

// The server may still keep what is finished, and the reason must not be lost.
TEST_F(SupervisorTest, TellsTheErrorOnTheFirstCtrlCAfterItAndKillsOnTheSecond) {
  MakePipes();
  const std::string up = absl::StrCat("echo up > /dev/fd/", alive_.write.get());
  const pid_t pid =
      Fork(Options(absl::StrCat("trap '", up,
                                "' INT; echo a > READY; sleep 1000 & while true; do wait $!; done"),
                   "echo 'macaw-worker: error: line 7 is no number' >&2; exit 2"));
  char asked[3];
  ASSERT_EQ(::read(alive_.read.get(), asked, 3), 3);  // the server, to stop
  ::kill(pid, SIGINT);
  EXPECT_THAT(NextLineOf(said_pipe_), HasSubstr("line 7 is no number"));
  ::kill(pid, SIGINT);
  EXPECT_THAT(NextLineOf(said_pipe_), HasSubstr("killing"));
  EXPECT_EQ(ExitCodeOf(pid), 3) << "it has failed, and was not only killed";
  AwaitNoChildLeft();
}

TEST_F(SupervisorTest, LeavesNoChildBehindWhenItIsKilledItself) {
  MakePipes();
  const pid_t pid = Fork(Options("trap '' INT TERM HUP; echo a > READY; exec sleep 1000",
                                 absl::StrCat("trap '' INT TERM HUP; echo up > /dev/fd/",
                                              alive_.write.get(), "; exec sleep 1000"),
                                 3));
  char up[9];
  for (size_t got = 0; got < sizeof(up);) {  // all three workers run
    const ssize_t n = ::read(alive_.read.get(), up + got, sizeof(up) - got);
    ASSERT_GT(n, 0);
    got += static_cast<size_t>(n);
  }
  ::kill(pid, SIGKILL);
  EXPECT_EQ(ExitCodeOf(pid), 128 + SIGKILL);
  AwaitNoChildLeft();
}

TEST_F(SupervisorTest, PassesARefusalOfTheServerOnInItsOwnWords) {
  const auto refused = Supervise(
      Options("echo 'macaw-server: error: the run has done its 6 rounds' >&2; exit 2", ""));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()));
  EXPECT_EQ(refused.status().message(), "the run has done its 6 rounds");
  // What ends a run that has begun may have more in the log.
  const auto ended = Supervise(Options(
      "echo a > READY; echo 'macaw-server: error: round 2: all clients were lost' >&2; exit 1",
      "exec sleep 1000"));
  EXPECT_EQ(ended.status().message(),
            absl::StrCat("round 2: all clients were lost (", dir_, "/server.log)"));
}

}  // namespace
}  // namespace macaw::cli
