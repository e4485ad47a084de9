// Supervise: workers and services.
#include "tests/cli/supervisor_fixture.h"

namespace macaw::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(SupervisorTest, StartsWorkersWithTheAddressAndPassesRowsOn) {
  const auto end = Supervise(Options(R"(echo unix:/here > READY
                                        read address < DIR/fifo
                                        echo "{\"round\": 1, \"worker\": \"$address\"}" > REPORT
                                        echo '{"round": 2}' > REPORT)",
                                     "echo ADDRESS > DIR/fifo"));
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(*end, SupervisedEnd::kFinished);
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
            absl::StrCat("no such file: rows.csv (", dir_, "/worker-0.log)"));
  EXPECT_THAT(said_, IsEmpty());
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

TEST_F(SupervisorTest, KillsEverythingWhenItsTimeIsOver) {
  MakePipes();
  const std::string stubborn = "trap '' INT TERM HUP; ";
  SupervisorOptions options =
      Options(stubborn + "echo a > READY; exec sleep 1000", stubborn + "exec sleep 1000");
  options.limit = std::chrono::milliseconds(200);  // the worker may run by then, or not
  const pid_t pid = Fork(options);
  AwaitNoChildLeft();
  EXPECT_EQ(ExitCodeOf(pid), static_cast<int>(SupervisedEnd::kOutOfTime));
  EXPECT_EQ(NextLineOf(said_pipe_), "(end)") << "it says nothing";
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

TEST_F(SupervisorTest, ReportsAProgramThatCannotBeRun) {
  SupervisorOptions options = Options("", "");
  options.server = [this](const ServerStart&) {
    return ChildSpec{
        .name = "macaw-server", .argv = {"/nowhere/macaw-server"}, .log = dir_ + "/server.log"};
  };
  EXPECT_THAT(std::string(Supervise(options).status().message()),
              HasSubstr("/nowhere/macaw-server"));
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

}  // namespace
}  // namespace macaw::cli
