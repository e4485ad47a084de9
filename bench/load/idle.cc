#include "bench/load/idle.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/load/common.h"
#include "bench/programs.h"
#include "core/digest.h"
#include "core/fd.h"
#include "core/random.h"
#include "proto/wire/remote.h"
#include "testing/fake_handler.h"

namespace macaw::bench {

void ServeNothing(const std::string& authority, const std::string& listen, int ready) {
  std::unique_ptr<identity::Authority> opened;
  if (!authority.empty()) {
    auto authorities = identity::Authority::Open(authority);
    Check(authorities.status(), "authority");
    opened = *std::move(authorities);
  }
  fleet::FakeHandler handler;
  wire::ServerOptions options;
  options.listen = listen;
  options.authority = opened.get();
  const auto server = wire::FleetServer::Start(options, handler);
  Check(server.status(), "listen");
  WriteAll(Fd(ready), BytesOf((*server)->address()));
  while (true) ::pause();
}

void MeasureIdle(size_t devices, double pacing, bool plain) {
  ::signal(SIGPIPE, SIG_IGN);
  AllowDescriptors(devices + 600);  // the server reserves 256, and both have some of their own
  const Folder folder;
  const std::string authority = plain ? "" : folder / "authority";
  std::vector<identity::IdentityFiles> identities;
  if (!plain) {
    const double begin = Now();
    Check(identity::Authority::Create(authority, "load", absl::Now()), "authority");
    const auto opened = *identity::Authority::Open(authority);
    identities.resize(devices);
    All(devices, [&](size_t i) {
      identities[i] = Certify(*opened, folder / absl::StrCat("device-", i),
                              absl::StrCat("device-", i), absl::StrCat(i));
    });
    std::printf("%zu certificates in %.1f s\n", devices, Now() - begin);
  }
  const auto serve = [&](const std::string& listen) {
    return std::make_unique<Program>(
        std::vector<std::string>{ProgramPath("bench_load"), "--serve", authority, listen},
        "--ready", /*log=*/"");
  };
  auto server = serve(plain ? absl::StrCat("unix:", folder / "socket") : "127.0.0.1:0");
  const std::string address = server->address();

  std::vector<Link> links;
  for (size_t i = 0; i < devices; ++i) {
    wire::ClientOptions options;
    options.server = address;
    if (!plain) options.identity = identities[i];
    auto link = wire::Dial(options);
    Check(link.status(), "dial");
    links.push_back(*std::move(link));
  }
  const double empty = server->Megabytes();
  const size_t own = server->Descriptors();
  double cpu = server->CpuSeconds();
  double begin = Now();
  All(devices, [&](size_t i) { Hello(*links[i]); });
  const auto count = static_cast<double>(devices);
  std::printf("connecting at once     %6.1f s, %.2f ms of the server's CPU each\n", Now() - begin,
              (server->CpuSeconds() - cpu) * 1e3 / count);
  std::printf("server's memory        %6.0f MB, %.0f kB a connection\n", server->Megabytes(),
              (server->Megabytes() - empty) * 1024 / count);
  std::printf("server's open files    %6zu, of them its own %zu\n", server->Descriptors(), own);

  cpu = server->CpuSeconds();
  const Times beats = All(devices, [&](size_t i) {
    Check(links[i]->Heartbeat({.session = SessionId(7)}).status(), "heartbeat");
  });
  std::printf("heartbeats, %d at once %6.2f ms median, %.2f ms 99th percentile, %.2f ms CPU each\n",
              kThreads, beats.At(0.5) * 1e3, beats.At(0.99) * 1e3,
              (server->CpuSeconds() - cpu) * 1e3 / count);

  for (const double spread : {0.0, pacing}) {
    server.reset();  // every connection breaks
    server = serve(address);
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
}

}  // namespace macaw::bench
