// What floods cost the server of a fleet, and what becomes of the run under them. A server with an
// authority and two workers do a run over mutual TLS, once in peace and once under each flood: by
// strangers, by a device whose certificate was revoked, by an enrolled device, and at the status
// page. Each flood goes on until the run has ended.
//
//   bench_floods [FLOOD...] [--rounds N]
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/frame.h"
#include "bench/programs.h"
#include "core/files.h"
#include "identity/authority.h"
#include "proto/wire/remote.h"
#include "testing/raw_caller.h"

namespace macaw::bench {
namespace {

namespace fs = std::filesystem;
using wire::ConnectTo;
using wire::RawCaller;

constexpr int kAttackers = 2;  // threads
// The server bounds what an address may cost, so attackers have another one than the workers.
constexpr const char* kFrom = "127.0.0.66";
constexpr double kLongest = 300;  // seconds of a run

// What a flood is aimed at.
struct Target {
  std::string server, page;                            // addresses
  identity::IdentityFiles revoked, enrolled, foreign;  // of devices; foreign: another authority's
};

// Returns how often it tried something.
using Flood = std::function<uint64_t(const Target&, const std::atomic<bool>& over)>;

std::unique_ptr<fleet::FleetLink> LinkOf(const Target& target) {
  auto link = wire::Dial(
      {.server = target.server, .call_timeout = FromSeconds(5), .identity = target.enrolled});
  Check(link.status(), "dial");
  return *std::move(link);
}

// Connections that stay open. Each sends `first`, if there is one, and then a byte now and then.
uint64_t Connections(const std::string& at, const std::string& first,
                     const std::atomic<bool>& over) {
  uint64_t tries = 0;
  std::list<Fd> open;
  while (!over) {
    open.push_back(ConnectTo(at, kFrom));
    if (!first.empty()) (void)!::send(open.back().get(), first.data(), first.size(), MSG_NOSIGNAL);
    ++tries;
    if (open.size() > 100) open.pop_front();
    if (!first.empty()) {
      for (const Fd& fd : open) (void)!::send(fd.get(), "x", 1, MSG_NOSIGNAL);
    }
    absl::SleepFor(absl::Microseconds(500));
  }
  return tries;
}

// Connects over TLS, with the certificate in `files` or without one, and makes `call` if there is
// one.
uint64_t Handshakes(const Target& target, const std::atomic<bool>& over,
                    const identity::IdentityFiles* files, const std::string& call) {
  uint64_t tries = 0;
  while (!over) {
    RawCaller caller(target.server, files, kFrom);
    for (int i = 0; i < 100 && !over && caller.open() && !call.empty(); ++i, ++tries)
      caller.Call(call, "");
    ++tries;
  }
  return tries;
}

uint64_t PartMessages(const Target& target, const std::atomic<bool>& over) {
  uint64_t tries = 0;
  std::list<RawCaller> callers;
  while (!over) {
    if (callers.size() > 8) callers.pop_front();
    RawCaller& caller = callers.emplace_back(target.server, nullptr, kFrom);
    for (int stream = 0; stream < 64 && caller.open() && !over; ++stream, ++tries)
      caller.SendPartOfMessage(caller.Begin("/macaw.v1.Enrolment/Enrol"), (4 << 20) - 100, 4 << 20);
  }
  return tries;
}

uint64_t Resets(const Target& target, const std::atomic<bool>& over) {
  uint64_t tries = 0;
  while (!over) {
    RawCaller caller(target.server, nullptr, kFrom);
    for (int i = 0; i < 10'000 && caller.open() && !over; ++i, ++tries)
      caller.Reset(caller.Begin("/macaw.v1.Enrolment/Enrol"));
    ++tries;
  }
  return tries;
}

uint64_t WrongInvites(const Target& target, const std::atomic<bool>& over) {
  uint64_t tries = 0;
  while (!over) {
    RawCaller caller(target.server, nullptr, kFrom);
    for (int i = 0; i < 100 && caller.open() && !over; ++i, ++tries) {
      // EnrolRequest.secret: 16 bytes that were made up.
      std::string message("\x0a\x10", 2);
      message.append(absl::StrCat(absl::Hex(tries * 7919, absl::kZeroPad16)));
      caller.Call("/macaw.v1.Enrolment/Enrol", message);
    }
    ++tries;
  }
  return tries;
}

uint64_t Registrations(const Target& target, const std::atomic<bool>& over) {
  const auto link = LinkOf(target);
  uint64_t tries = 0;
  for (; !over; ++tries) {
    fleet::RegisterRequest request{.name = "phone", .incarnation = tries + 1, .slots = 4096};
    request.owner = true;
    request.data_digest.bytes[0] = static_cast<uint8_t>(tries);
    (void)link->Register(request);
  }
  return tries;
}

uint64_t Calls(const Target& target, const std::atomic<bool>& over) {
  const auto link = LinkOf(target);
  uint64_t tries = 0;
  for (; !over; ++tries) {
    const SessionId session(tries + 1);
    switch (tries % 4) {
      case 0:
        (void)link->Lease({.session = session, .wanted = 4096});
        break;
      case 1:
        (void)link->Heartbeat({.session = session, .progress = tries});
        break;
      case 2:
        (void)link->Release({.session = session, .leaving = true});
        break;
      default:
        (void)link->Commit({.session = session, .commit_id = tries});
    }
  }
  return tries;
}

struct Named {
  std::string name;
  Flood flood;
};

std::vector<Named> Floods() {
  const auto calls = [](auto files, const std::string& call) {
    return [=](const Target& target, const std::atomic<bool>& over) {
      return Handshakes(target, over, files(target), call);
    };
  };
  const auto no_files = [](const Target&) -> const identity::IdentityFiles* { return nullptr; };
  return {
      {"connections",
       [](const Target& t, const auto& over) { return Connections(t.server, "", over); }},
      {"handshakes", calls(no_files, "")},
      {"strange-certificates",
       calls([](const Target& t) { return &t.foreign; }, "/macaw.v1.Fleet/Hello")},
      {"part-messages", PartMessages},
      {"resets", Resets},
      {"wrong-invites", WrongInvites},
      {"revoked", calls([](const Target& t) { return &t.revoked; }, "/macaw.v1.Fleet/Hello")},
      {"page",
       [](const Target& t, const auto& over) {
         return Connections(t.page, "GET /status.json HTTP/1.1\r\nX: ", over);
       }},
      {"registrations", Registrations},
      {"calls", Calls},
  };
}

double DiskMegabytes(const std::vector<std::string>& folders) {
  double bytes = 0;
  std::error_code error;
  for (const std::string& folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(folder, error))
      if (entry.is_regular_file(error)) bytes += static_cast<double>(entry.file_size(error));
  }
  return bytes / (1 << 20);
}

size_t AuditLines(const std::string& authority) {
  const std::string text = ReadFile(authority + "/audit.jsonl").value_or("");
  return static_cast<size_t>(std::ranges::count(text, '\n'));
}

class Bench {
 public:
  explicit Bench(uint32_t rounds) {
    const std::string config =
        (fs::path(ProgramPath("x")).parent_path().parent_path().parent_path() /
         "examples/synthetic.toml")
            .string();
    const std::string length = absl::StrCat("run.rounds=", rounds);
    RunProgram({ProgramPath("macaw"), "simulate", config, "--set", length, "--quiet", "--out",
                folder_ / "simulation"});
    digest_ = ModelDigest(folder_ / "simulation");
    RunProgram({ProgramPath("macaw"), "plan", config, "--set", length, "--set", "server.workers=2",
                "--set", "server.durability=commit", "--out", plan_});
    for (const std::string& of : {authority_, folder_ / "other"})
      Check(identity::Authority::Create(of, "bench", absl::Now()), "authority");
    auto authority = identity::Authority::Open(authority_);
    Check(authority.status(), "authority");
    auto other = identity::Authority::Open(folder_ / "other");
    Check(other.status(), "authority");
    const auto text = ReadFile(config);
    Check(text.status(), "config");
    for (const std::string name : {"a", "b"}) {
      Certify(**authority, folder_ / name, name, name, identity::Role::kWorker);
      Check(AtomicWriteFile(NodeFile(name),
                            absl::StrCat(*text, "\n[node]\nidentity = \"", folder_ / name, "\"\n")),
            "node");
    }
    target_ = {.revoked = Certify(**authority, folder_ / "lost", "lost", "lost"),
               .enrolled = Certify(**authority, folder_ / "phone", "phone", "phone"),
               .foreign = Certify(**other, folder_ / "foreign", "foreign", "foreign")};
    Check((*authority)->Revoke("lost", "was lost", absl::Now()), "revoke");
  }

  // One run, under a flood unless it is null, and its line of the table.
  void Measure(const std::string& name, const Flood& flood) {
    const std::string run = absl::StrCat(folder_ / "run-", name);
    const size_t lines = AuditLines(authority_);
    const double disk = DiskMegabytes({authority_});
    const std::string log = run + ".log";
    Program server({ProgramPath("macaw-server"), "--config", plan_, "--run-dir", run, "--listen",
                    "127.0.0.1:0", "--authority", authority_, "--http", "127.0.0.1:0"},
                   "--ready-fd", log);
    target_.server = server.address();
    target_.page = PageOf(log);
    const double began = Now();
    std::atomic<bool> over = false;
    std::atomic<uint64_t> tries = 0;
    std::vector<std::thread> attackers;
    for (int i = 0; flood != nullptr && i < kAttackers; ++i)
      attackers.emplace_back([&] {
        // On machines of their own they would not take the server's processor.
        ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19);
        tries += flood(target_, over);
      });
    std::list<Program> workers;
    for (const std::string node : {"a", "b"}) {
      workers.emplace_back(
          std::vector<std::string>{ProgramPath("macaw-worker"), "--config", NodeFile(node),
                                   "--server", server.address(), "--name", node, "--scratch",
                                   absl::StrCat(folder_ / "scratch-", node)},
          absl::StrCat(run, ".", node, ".log"));
    }
    double peak = 0;
    while (server.Runs()) {
      peak = std::max(peak, server.Megabytes());
      if (Now() - began > kLongest)
        Check(absl::DeadlineExceededError(ReadFile(log).value_or("")), "the run does not end");
      absl::SleepFor(absl::Milliseconds(100));
    }
    const double seconds = Now() - began;
    const Program::End end = server.Wait();
    over = true;
    for (std::thread& attacker : attackers) attacker.join();
    for (Program& worker : workers) worker.Wait();
    const bool same = end.good && ModelDigest(run) == digest_;
    failed_ = failed_ || !same;
    std::printf("| %s | %.0f | %.1f | %.2f | %.0f | %.1f | %zu | %s |\n", name.c_str(),
                static_cast<double>(tries) / seconds, seconds, end.cpu_seconds / seconds, peak,
                DiskMegabytes({run}) + DiskMegabytes({authority_}) - disk,
                AuditLines(authority_) - lines,
                !end.good ? "the server failed"
                : same    ? "the simulation's"
                          : "ANOTHER");
    std::error_code ignored;
    fs::remove_all(run, ignored);
  }

  // Whether a server failed or a run had another model.
  bool failed() const { return failed_; }

 private:
  // host:port of the status page, as the server's log says.
  static std::string PageOf(const std::string& log) {
    const std::string before = "status_page http://";
    std::string text;
    for (const double began = Now(); Now() - began < kLongest;
         absl::SleepFor(absl::Milliseconds(10))) {
      text = ReadFile(log).value_or("");
      const size_t at = text.find(before);
      if (at == text.npos) continue;
      const size_t begin = at + before.size(), end = text.find('/', begin);
      if (end != text.npos) return text.substr(begin, end - begin);
    }
    Check(absl::DeadlineExceededError(text), absl::StrCat(log, " names no status page"));
    return "";
  }

  std::string NodeFile(const std::string& node) const {
    return absl::StrCat(folder_ / "node-", node, ".toml");
  }

  const Folder folder_;
  const std::string authority_ = folder_ / "authority", plan_ = folder_ / "plan.toml";
  std::string digest_;
  Target target_;
  bool failed_ = false;
};

}  // namespace
}  // namespace macaw::bench

int main(int argc, char** argv) {
  using namespace macaw::bench;
  CLI::App app("What floods cost the server of a fleet", "bench_floods");
  std::vector<std::string> names, all;
  for (const Named& one : Floods()) all.push_back(one.name);
  uint32_t rounds = 2000;
  app.add_option("FLOOD", names, "Which floods (default: all)")->check(CLI::IsMember(all));
  app.add_option("--rounds", rounds, "Of the run (default 2000)")->check(CLI::Range(1, 1'000'000));
  CLI11_PARSE(app, argc, argv);
  ::signal(SIGPIPE, SIG_IGN);
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  PrintHeading(argc, argv);
  Bench bench(rounds);
  std::printf("A run of %u rounds with two workers; %d threads flood its server until it ends.\n\n",
              rounds, kAttackers);
  std::printf(
      "| flood | tries/s | s | server, cores | server, peak MB | disk MB | audit lines | "
      "model |\n|---|---|---|---|---|---|---|---|\n");
  bench.Measure("none", nullptr);
  for (const Named& one : Floods()) {
    if (names.empty() || std::ranges::count(names, one.name) > 0)
      bench.Measure(one.name, one.flood);
  }
  return bench.failed() ? 1 : 0;
}
