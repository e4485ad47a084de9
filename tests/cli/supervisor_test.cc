#include "cli/process/supervisor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/process/line_reader.h"
#include "cli/process/restart_policy.h"
#include "core/files.h"
#include "tests/support/temporary_folder.h"

namespace macaw::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Servers and workers are shell scripts. In them READY and REPORT stand for the descriptors' files,
// DIR for a private folder with a fifo, ADDRESS for what the worker was told to dial.
class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() { EXPECT_EQ(::mkfifo((dir_ + "/fifo").c_str(), 0600), 0); }

  SupervisorOptions Options(const std::string& server, const std::string& worker,
                            uint32_t workers = 1) {
    SupervisorOptions options;
    options.workers = workers;
    options.server = [=, this](const ServerStart& start) {
      ChildSpec spec{.name = "macaw-server",
                     .log = dir_ + "/server.log",
                     .inherit = {start.ready_fd, start.report_fd}};
      const std::string script =
          absl::StrReplaceAll(server, {{"READY", absl::StrCat("/dev/fd/", start.ready_fd)},
                                       {"REPORT", absl::StrCat("/dev/fd/", start.report_fd)},
                                       {"AGAIN", start.again ? "again" : "first"},
                                       {"BEFORE", start.address},
                                       {"DIR", dir_}});
      spec.argv = {"/bin/sh", "-c", script};
      if (alive_.write.open()) spec.inherit.push_back(alive_.write.get());
      return spec;
    };
    options.worker = [=, this](uint32_t index, const std::string& address) {
      ChildSpec spec{.name = absl::StrCat("worker-", index),
                     .log = absl::StrCat(dir_, "/worker-", index, ".log")};
      spec.argv = {"/bin/sh", "-c",
                   absl::StrReplaceAll(worker, {{"DIR", dir_}, {"ADDRESS", address}})};
      if (alive_.write.open()) spec.inherit.push_back(alive_.write.get());
      return spec;
    };
    options.on_row = [this](const std::string& row) {
      const bool moved_on = !std::ranges::count(rows_, row);
      rows_.push_back(row);
      return moved_on;
    };
    options.say = [this](const std::string& message) {
      said_.push_back(message);
      if (said_pipe_.write.open()) WriteLine(said_pipe_.write.get(), message);
    };
    return options;
  }

  static void WriteLine(int fd, const std::string& line) {
    const std::string text = line + "\n";
    EXPECT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  // Supervises in a process of its own, which exits with 0 finished, 1 interrupted, 2 killed, 3
  // failed. What it says comes through said_pipe_; alive_ ends when no child is left that holds it.
  pid_t Fork(const SupervisorOptions& options) {
    EXPECT_TRUE(said_pipe_.read.open() && alive_.read.open());
    const pid_t pid = ::fork();
    if (pid == 0) {
      const absl::StatusOr<RunEnd> end = Supervise(options);
      ::_exit(end.ok() ? static_cast<int>(*end) : 3);
    }
    said_pipe_.write.Close();
    alive_.write.Close();
    return pid;
  }
  void MakePipes() {
    alive_ = *MakePipe();
    said_pipe_ = *MakePipe();
  }
  std::string NextLineOf(PipePair& pipe) {
    while (lines_.empty()) {
      for (std::string& line : reader_.Read(pipe.read.get())) lines_.push_back(std::move(line));
      if (reader_.ended()) return "(end)";
    }
    std::string line = lines_.front();
    lines_.erase(lines_.begin());
    return line;
  }
  // Blocks until every child is gone: they all hold the other end.
  void AwaitNoChildLeft() {
    char byte;
    EXPECT_EQ(::read(alive_.read.get(), &byte, 1), 0);
  }
  static int ExitCodeOf(pid_t pid) {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  const testing_support::TemporaryFolder folder_;
  const std::string dir_ = folder_.path();
  std::vector<std::string> rows_, said_, lines_;
  PipePair alive_, said_pipe_;
  LineReader reader_;
};

TEST_F(SupervisorTest, StartsWorkersWithTheAddressAndPassesRowsOn) {
  const auto end = Supervise(Options(R"(echo unix:/here > READY
                                        read address < DIR/fifo
                                        echo "{\"round\": 1, \"worker\": \"$address\"}" > REPORT
                                        echo '{"round": 2}' > REPORT)",
                                     "echo ADDRESS > DIR/fifo"));
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(*end, RunEnd::kFinished);
  EXPECT_THAT(rows_, ElementsAre(R"({"round": 1, "worker": "unix:/here"})", R"({"round": 2})"));
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(SupervisorTest, StartsAWorkerAgainThatWasKilled) {
  const auto end = Supervise(Options("echo a > READY; read line < DIR/fifo",
                                     R"(echo x >> DIR/starts
                                        [ $(wc -l < DIR/starts) -gt 2 ] || kill -9 $$
                                        echo done > DIR/fifo)"));
  ASSERT_TRUE(end.ok()) << end.status();
  ASSERT_EQ(said_.size(), 2u);
  EXPECT_THAT(said_[0], AllOf(HasSubstr("worker-0 died (killed by signal 9"),
                              HasSubstr("starting it again")));
}

TEST_F(SupervisorTest, GivesUpAtOnceOnAWorkerThatSaysTryingAgainIsPointless) {
  const auto end = Supervise(
      Options("echo a > READY; exec sleep 1000",
              "echo 'macaw-worker: error: no such file: rows.csv' >&2; echo bye >&2; exit 2"));
  EXPECT_EQ(end.status().message(),
            absl::StrCat("worker-0: exit code 2: macaw-worker: error: no such file: rows.csv (",
                         dir_, "/worker-0.log)"));
}

TEST_F(SupervisorTest, TellsHowTheServerDied) {
  const auto end = Supervise(Options("echo 'error: disk full' >&2; exit 3", "exec sleep 1000"));
  EXPECT_EQ(end.status().message(),
            absl::StrCat("macaw-server: exit code 3: error: disk full (", dir_, "/server.log)"));
}

TEST_F(SupervisorTest, ExplainsAKilledProcessByItsSignalAndNotByItsLastLine) {
  const auto end = Supervise(Options(
      "echo '12:00:00 W macaw-server wire: error: a connection was reset' >&2; kill -9 $$", ""));
  EXPECT_THAT(std::string(end.status().message()),
              AllOf(HasSubstr("macaw-server: killed by signal 9 (Killed"),
                    HasSubstr(dir_ + "/server.log"), Not(HasSubstr("connection"))));
}

TEST_F(SupervisorTest, QuotesWhatAProcessSaidWhenItAbortedItself) {
  const auto end =
      Supervise(Options("echo 'terminate called: out of luck' >&2; kill -ABRT $$", ""));
  EXPECT_THAT(std::string(end.status().message()),
              AllOf(HasSubstr("killed by signal 6"), HasSubstr("out of luck")));
}

TEST_F(SupervisorTest, QuotesOnlyWhatThisProcessHasWritten) {
  const auto end = Supervise(Options("echo a > READY; exec sleep 1000",
                                     R"(echo x >> DIR/starts
                                        if [ $(wc -l < DIR/starts) -gt 1 ]; then
                                          echo 'nothing to train on'; exit 2
                                        fi
                                        echo 'macaw-worker: error: of a former life'; exit 1)"));
  EXPECT_THAT(std::string(end.status().message()),
              AllOf(HasSubstr("nothing to train on"), Not(HasSubstr("former life"))));
  EXPECT_THAT(said_, ElementsAre(HasSubstr("of a former life")));
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

TEST_F(SupervisorTest, EndsTheRunOnceAServiceHasBeenStoppedForTooLong) {
  auto redis = Child::Spawn({.name = "redis-server",
                             .argv = {"/bin/sh", "-c", "kill -STOP $$"},
                             .log = dir_ + "/redis.log"});
  ASSERT_TRUE(redis.ok()) << redis.status();
  // Stopped before anybody waits for its signal.
  while (!redis->Stopped()) std::this_thread::yield();
  SupervisorOptions options = Options("echo a > READY; read line < DIR/fifo", "exec sleep 1000");
  options.patience = std::chrono::milliseconds(1);
  options.services.push_back({.fd = [&] { return redis->pidfd(); },
                              .attend = [] { return absl::UnavailableError("it has ended"); },
                              .process = [&] { return &*redis; }});
  EXPECT_THAT(std::string(Supervise(options).status().message()),
              HasSubstr("redis-server has been stopped"));
}

TEST_F(SupervisorTest, StartsAWorkerAnewThatHasBeenStoppedForTooLong) {
  SupervisorOptions options = Options("echo a > READY; read line < DIR/fifo",
                                      R"(echo x >> DIR/starts
                                         [ $(wc -l < DIR/starts) -gt 1 ] || kill -STOP $$
                                         echo done > DIR/fifo)");
  options.patience = std::chrono::milliseconds(1);
  const auto end = Supervise(options);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_THAT(said_, ElementsAre(HasSubstr("worker-0 is stopped"), HasSubstr("killing it"),
                                 HasSubstr("starting it again")));
}

TEST_F(SupervisorTest, WaitsForAProcessThatIsStoppedForAMoment) {
  ASSERT_EQ(::mkfifo((dir_ + "/told").c_str(), 0600), 0);
  const Fd told(::open((dir_ + "/told").c_str(), O_RDWR | O_CLOEXEC));
  SupervisorOptions options = Options("echo a > READY; read line < DIR/fifo",
                                      "(read line < DIR/told; kill -CONT $$) & kill -STOP $$; "
                                      "read line < DIR/told; echo done > DIR/fifo");
  options.say = [&](const std::string& message) {
    said_.push_back(message);
    WriteLine(told.get(), message);
  };
  const auto end = Supervise(options);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_THAT(said_,
              ElementsAre(HasSubstr("worker-0 is stopped; waiting 60 s"), "worker-0 goes on"));
}

TEST_F(SupervisorTest, EndsTheRunWhenAWorkerIsNotAnsweredTwice) {
  const auto end = Supervise(Options(
      "echo a > READY; exec sleep 1000",
      absl::StrCat("echo 'macaw-worker: error: the server has not answered for 60 s' >&2; exit ",
                   kExitUnanswered)));
  EXPECT_THAT(std::string(end.status().message()),
              AllOf(HasSubstr("no answer"), HasSubstr("worker-0"),
                    HasSubstr("the server has not answered for 60 s")));
  EXPECT_THAT(said_, ElementsAre(AllOf(HasSubstr("the server has not answered for 60 s"),
                                       HasSubstr("once more"))));
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
  EXPECT_EQ(*end, RunEnd::kFinished);
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

TEST_F(SupervisorTest, CtrlCEndsARunWhoseServerIsNotBackYet) {
  MakePipes();
  SupervisorOptions options = Options("echo a > READY; kill -9 $$", "sleep 1000");
  options.restart_server = true;
  const pid_t pid = Fork(options);
  // By the third death the next start is half a second away.
  for (int death = 0; death < 3; ++death)
    EXPECT_THAT(NextLineOf(said_pipe_), HasSubstr("starting it again"));
  ::kill(pid, SIGINT);
  EXPECT_THAT(NextLineOf(said_pipe_), HasSubstr("stopping"));
  EXPECT_EQ(ExitCodeOf(pid), static_cast<int>(RunEnd::kInterrupted));
  AwaitNoChildLeft();
}

TEST_F(SupervisorTest, ReportsAProgramThatCannotBeRun) {
  SupervisorOptions options = Options("", "");
  options.server = [this](const ServerStart&) {
    return ChildSpec{
        .name = "macaw-server", .argv = {"/nowhere/macaw-server"}, .log = dir_ + "/server.log"};
  };
  EXPECT_THAT(std::string(Supervise(options).status().message()),
              HasSubstr("/nowhere/macaw-server"));
}

TEST_F(SupervisorTest, TellsAServerThatRefusesFromOneThatDied) {
  const auto end_of = [&](const std::string& how) {
    return Supervise(Options("echo a > READY; " + how, "exec sleep 1000")).status();
  };
  EXPECT_TRUE(absl::IsFailedPrecondition(end_of("exit 2"))) << "it would refuse again";
  EXPECT_TRUE(absl::IsAborted(end_of("exit 1")));
  EXPECT_TRUE(absl::IsAborted(end_of("kill -9 $$")));
}

TEST_F(SupervisorTest, TellsAWorkerWithoutRoomFromOneThatRefuses) {
  const auto end_of = [&](const std::string& how) {
    return Supervise(Options("trap 'exit 130' INT; echo a > READY; sleep 1000 & wait $!", how))
        .status();
  };
  EXPECT_TRUE(absl::IsResourceExhausted(end_of("exit 4"))) << "there may be room tomorrow";
  EXPECT_TRUE(absl::IsInvalidArgument(end_of("exit 2")));
}

TEST_F(SupervisorTest, AttendsToAServiceThatHasSomethingToDo) {
  const PipePair pipe = *MakePipe();
  WriteLine(pipe.write.get(), "x");
  const Fd fifo(::open((dir_ + "/fifo").c_str(), O_RDWR | O_CLOEXEC));
  SupervisorOptions options = Options("echo a > READY; read line < DIR/fifo", "exec sleep 1000");
  int attended = 0;
  options.services.push_back({.fd = [&] { return pipe.read.get(); },
                              .attend =
                                  [&] {
                                    char line[2];
                                    EXPECT_EQ(::read(pipe.read.get(), line, 2), 2);
                                    ++attended;
                                    WriteLine(fifo.get(), "the server may end");
                                    return absl::OkStatus();
                                  }});
  const auto end = Supervise(options);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(attended, 1);
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
  EXPECT_EQ(ExitCodeOf(pid), static_cast<int>(RunEnd::kInterrupted));
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
  EXPECT_EQ(ExitCodeOf(pid), static_cast<int>(RunEnd::kFinished));
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
  EXPECT_EQ(ExitCodeOf(pid), static_cast<int>(RunEnd::kKilled));
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

TimePoint At(double seconds) { return TimePoint{} + FromSeconds(seconds); }

TEST(RestartPolicy, WaitsLongerFromDeathToDeath) {
  RestartPolicy policy;
  std::vector<double> waits;
  for (int i = 0; i < 5; ++i) waits.push_back(ToSeconds(policy.OnDeath(At(100 + i)).value()));
  EXPECT_THAT(waits, ElementsAre(0, 0.1, 0.5, 1, 2));
  EXPECT_EQ(policy.OnDeath(At(105)), std::nullopt);
}

TEST(RestartPolicy, DoesNotGiveUpWhileTheRunMovesOn) {
  RestartPolicy policy;
  for (int i = 0; i < 50; ++i) {
    EXPECT_NE(policy.OnDeath(At(100 + i)), std::nullopt) << i;
    policy.OnProgress(At(100 + i));
  }
}

TEST(RestartPolicy, DoesNotLetAServerWaitThatHasFinishedARoundSince) {
  RestartPolicy server(RestartPolicy::BackOff::kFruitlessDeaths), worker;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(server.OnDeath(At(100 + i)), Duration(0)) << i;
    server.OnProgress(At(100 + i));
    worker.OnProgress(At(100 + i));
    const std::optional<Duration> wait = worker.OnDeath(At(100 + i));
    EXPECT_EQ(wait > Duration(0), i > 0) << i;
  }
  EXPECT_EQ(server.OnDeath(At(119.5)), Duration(0));
  EXPECT_GT(server.OnDeath(At(119.6)), Duration(0)) << "now it has died twice for nothing";
}

TEST(RestartPolicy, ForgetsDeathsOfLongAgo) {
  RestartPolicy policy;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(policy.OnDeath(At(100 + 130 * i)), Duration(0)) << i;
}

TEST(RestartPolicy, GivesUpOnAWorkerThatTakesAMinuteToDie) {
  RestartPolicy policy;
  for (int i = 0; i < 5; ++i) EXPECT_NE(policy.OnDeath(At(100 + 60 * i)), std::nullopt) << i;
  EXPECT_EQ(policy.OnDeath(At(400)), std::nullopt);
}

TEST(LastErrorLine, PrefersAnErrorToWhatCameAfterIt) {
  const std::string log = ::testing::TempDir() + "/last_error.log";
  ASSERT_TRUE(AtomicWriteFile(log, "one\nx: error: two\nthree\n\n").ok());
  EXPECT_EQ(LastErrorLine(log), "x: error: two");
  EXPECT_EQ(LastErrorLine(log, 4), "x: error: two");
  EXPECT_EQ(LastErrorLine(log, 18), "three") << "what came before is another process's";
  ASSERT_TRUE(AtomicWriteFile(log, "x: error: two\nthree errors in 5 s\n").ok());
  EXPECT_EQ(LastErrorLine(log), "x: error: two");
  ASSERT_TRUE(AtomicWriteFile(log, "one\nthree\n\n").ok());
  EXPECT_EQ(LastErrorLine(log), "three");
  EXPECT_EQ(LastErrorLine("/nowhere.log"), "");
}

}  // namespace
}  // namespace macaw::cli
