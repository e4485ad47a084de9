// What a fleet's connections cost the server: N devices over mutual TLS, each with a certificate of
// its own. The server is a process of its own (wire::FleetServer; no run behind it, so what is
// measured is the transport). Prints memory a connection, the CPU time and the length of a
// reconnect storm with and without pacing, and the times of heartbeats.
//
//   bench_load [DEVICES [SECONDS OF PACING]]
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "core/fd.h"
#include "core/files.h"
#include "core/random.h"
#include "identity/authority.h"
#include "identity/key.h"
#include "proto/wire/remote.h"
#include "testing/fake_handler.h"

namespace macaw::bench {
namespace {

using Link = std::unique_ptr<fleet::FleetLink>;

constexpr int kThreads = 16;  // that make calls; each waits for its answer

void Check(const absl::Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "load: %s: %s\n", what, std::string(status.message()).c_str());
  std::exit(1);
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The server, in a child process that ends with this one.
class ServerProcess {
 public:
  ServerProcess(const std::string& authority, const std::string& listen) {
    int ends[2];
    if (::pipe(ends) != 0) std::exit(1);
    pid_ = ::fork();
    if (pid_ == 0) {  // this program again: gRPC does not survive a fork
      ::dup2(ends[1], STDOUT_FILENO);
      ::execl("/proc/self/exe", "bench_load", "--serve", authority.c_str(), listen.c_str(),
              nullptr);
      ::_exit(1);
    }
    ::close(ends[1]);
    const Fd reading(ends[0]);
    char text[128] = "";
    if (::read(reading.get(), text, sizeof(text) - 1) <= 0)
      Check(absl::InternalError("the server has not started"), "serve");
    address_ = text;
  }
  ~ServerProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  const std::string& address() const { return address_; }

  double Megabytes() const {
    const auto text = ReadFile(absl::StrCat("/proc/", pid_, "/smaps_rollup"));
    Check(text.status(), "memory");
    for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
      double kilobytes = 0;
      const std::vector<absl::string_view> parts = absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (parts.size() > 1 && parts[0] == "Pss:" && absl::SimpleAtod(parts[1], &kilobytes))
        return kilobytes / 1024;
    }
    return 0;
  }
  double CpuSeconds() const {
    const auto text = ReadFile(absl::StrCat("/proc/", pid_, "/stat"));
    Check(text.status(), "CPU time");
    const std::vector<std::string> parts = absl::StrSplit(text->substr(text->rfind(')') + 2), ' ');
    double user = 0, system = 0;
    if (!absl::SimpleAtod(parts[11], &user) || !absl::SimpleAtod(parts[12], &system)) return 0;
    return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }

 private:
  pid_t pid_ = 0;
  std::string address_;
};

// What the child does: writes its address to standard output and serves until it is killed.
[[noreturn]] void Serve(const std::string& folder, const std::string& listen) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto authority = identity::Authority::Open(folder);
  Check(authority.status(), "authority");
  fleet::FakeHandler handler;
  const auto server =
      wire::FleetServer::Start({.listen = listen, .authority = authority->get()}, handler);
  Check(server.status(), "listen");
  WriteAll(Fd(::dup(STDOUT_FILENO)), BytesOf((*server)->address()));
  while (true) ::pause();
}

// Calls `each` for 0 … count−1 from several threads. Returns the seconds of each call.
std::vector<double> All(size_t count, const std::function<void(size_t)>& each) {
  std::vector<double> seconds(count);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < count; i += kThreads) {
        const double begin = Now();
        each(i);
        seconds[i] = Now() - begin;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::ranges::sort(seconds);
  return seconds;
}

double At(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

void Hello(fleet::FleetLink& link) {
  // A server that has just been started again may not listen yet.
  for (int i = 0; i < 200; ++i) {
    const absl::Status status = link.Hello({1, 0, "load"}).status();
    if (status.ok()) return;
    if (!absl::IsUnavailable(status)) Check(status, "hello");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  Check(absl::UnavailableError("no answer for ten seconds"), "hello");
}

void Certify(identity::Authority& authority, const std::string& folder, size_t device) {
  const std::string name = absl::StrCat("device-", device);
  const identity::IdentityFiles files = identity::IdentityFiles::In(folder + "/" + name);
  Check(MakeDirectories(folder + "/" + name), "folder");
  const auto key = identity::ReadOrMakeKey(files.key);
  Check(key.status(), "key");
  identity::NewNode node;
  node.grant.subject.name = name;
  node.grant.owns = {name};
  const auto code = authority.InviteNode(node, absl::Now());
  Check(code.status(), "invite");
  const auto certificate = authority.Enrol(*identity::Invite::FromCode(*code),
                                           *identity::MakeRequest(*key), absl::Now());
  Check(certificate.status(), "enrol");
  Check(AtomicWriteFile(files.certificate, certificate->Pem()), "certificate");
  Check(AtomicWriteFile(files.authority, authority.certificate().Pem()), "authority");
}

// So many connections need as many descriptors, here and in the child.
void AllowDescriptors() {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

int Main(size_t devices, double pacing) {
  ::signal(SIGPIPE, SIG_IGN);
  AllowDescriptors();
  std::string folder = std::filesystem::temp_directory_path() / "macaw_load_XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  Check(identity::Authority::Create(folder + "/authority", "load", absl::Now()), "authority");
  auto server = std::make_unique<ServerProcess>(folder + "/authority", "127.0.0.1:0");
  const std::string address = server->address();

  double begin = Now();
  const auto authority = *identity::Authority::Open(folder + "/authority");
  All(devices, [&](size_t i) { Certify(*authority, folder, i); });
  std::printf("%zu certificates in %.1f s\n", devices, Now() - begin);

  std::vector<Link> links;
  for (size_t i = 0; i < devices; ++i) {
    const auto own = identity::IdentityFiles::In(absl::StrCat(folder, "/device-", i));
    auto link = wire::Dial({.server = address, .identity = own});
    Check(link.status(), "dial");
    links.push_back(*std::move(link));
  }
  const double empty = server->Megabytes();
  double cpu = server->CpuSeconds();
  begin = Now();
  All(devices, [&](size_t i) { Hello(*links[i]); });
  std::printf("connecting at once     %6.1f s, %.1f ms of the server's CPU each\n", Now() - begin,
              (server->CpuSeconds() - cpu) * 1e3 / static_cast<double>(devices));
  std::printf("server's memory        %6.0f MB, %.0f kB a connection\n", server->Megabytes(),
              (server->Megabytes() - empty) * 1024 / static_cast<double>(devices));

  cpu = server->CpuSeconds();
  const std::vector<double> beats = All(devices, [&](size_t i) {
    Check(links[i]->Heartbeat({.session = SessionId(7)}).status(), "heartbeat");
  });
  std::printf("heartbeats, %d at once %6.2f ms median, %.2f ms 99th percentile, %.2f ms CPU each\n",
              kThreads, At(beats, 0.5) * 1e3, At(beats, 0.99) * 1e3,
              (server->CpuSeconds() - cpu) * 1e3 / static_cast<double>(devices));

  for (const double spread : {0.0, pacing}) {
    server.reset();  // every connection breaks
    server = std::make_unique<ServerProcess>(folder + "/authority", address);
    RandomStream random({.seed = 1});
    std::vector<double> waits(devices);
    for (double& wait : waits) wait = spread * random.Uniform();
    std::ranges::sort(waits);
    begin = Now();
    All(devices, [&](size_t i) {
      const double left = begin + waits[i] - Now();
      if (left > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left));
      Hello(*links[i]);
    });
    std::printf(
        "storm, spread over %2.0f s %6.1f s until all are back, %.1f s of the server's CPU\n",
        spread, Now() - begin, server->CpuSeconds());
  }
  links.clear();
  server.reset();
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace macaw::bench

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--serve") macaw::bench::Serve(argv[2], argv[3]);
  const int devices = argc > 1 ? std::atoi(argv[1]) : 3000;
  const double pacing = argc > 2 ? std::atof(argv[2]) : 30;
  if (devices < 1 || pacing < 0) {
    std::fprintf(stderr, "usage: bench_load [DEVICES [SECONDS OF PACING]]\n");
    return 2;
  }
  return macaw::bench::Main(static_cast<size_t>(devices), pacing);
}
