// What bad networks cost: a model of 250 kB goes down and its sum of 494 kB up over a relay that is
// slow, far away, cut or silent, over mutual TLS. For each network the time, the bytes that were
// carried beyond the blobs, and whether they arrived as they are. Takes about seven minutes.
//
//   bench_bad_network [NAME]   only the networks whose names contain NAME
#include "testing/bad_network.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/frame.h"
#include "bench/programs.h"
#include "core/blob_digest.h"
#include "core/clock.h"
#include "core/files.h"
#include "identity/authority.h"
#include "identity/invite.h"
#include "identity/node_files.h"
#include "proto/wire/remote.h"
#include "testing/fake_handler.h"

namespace macaw::bench {
namespace {

using testing_support::BadNetwork;
using testing_support::BadNetworkOptions;
using testing_support::Fault;

constexpr uint64_t kDown = 250'000, kUp = 494'000;
constexpr SessionId kSession(7);

// A server that can be started again, and what it needs.
class Site {
 public:
  explicit Site(const std::string& folder)
      : folder_(folder), files_(identity::IdentityFiles::In(folder + "/node")) {
    Check(identity::Authority::Create(folder + "/authority", "bench", absl::Now()), "authority");
    authority_ = *identity::Authority::Open(folder + "/authority");
    Start();
    identity::NewNode node;
    node.grant.subject.name = "worker";
    node.grant.subject.role = identity::Role::kWorker;
    node.grant.owns = {"worker"};
    node.lifetime = identity::kNodeLifetime;
    const auto code = authority_->InviteNode(node, absl::Now());
    Check(code.status(), "invite");
    Check(MakeDirectories(folder + "/node"), "folder");
    Check(wire::Enrol(server_->address(), *identity::Invite::FromCode(*code), files_), "enrol");
  }
  void Start() {
    server_.reset();
    auto server = wire::FleetServer::Start({.listen = "127.0.0.1:0",
                                            .authority = authority_.get(),
                                            .partial_uploads = folder_ + "/uploads"},
                                           handler_);
    Check(server.status(), "listen");
    server_ = *std::move(server);
  }
  std::unique_ptr<fleet::FleetLink> Dial(const std::string& address) const {
    auto link = wire::Dial({.server = address, .identity = files_});
    Check(link.status(), "dial");
    return *std::move(link);
  }
  std::string address() const { return server_->address(); }
  fleet::FakeHandler& handler() { return handler_; }

 private:
  const std::string folder_;
  const identity::IdentityFiles files_;
  std::unique_ptr<identity::Authority> authority_;
  fleet::FakeHandler handler_;
  std::unique_ptr<wire::FleetServer> server_;
};

struct Case {
  std::string name;
  BadNetworkOptions network;
  // Called once when half of the upload has been carried.
  std::function<void(Site&, BadNetwork&)> halfway = nullptr;
};

std::vector<Case> Cases() {
  std::vector<Case> cases = {
      {"undisturbed", {}},
      {"200 ms there and back", {.delay = std::chrono::milliseconds(100)}},
      {"64 kB/s", {.bytes_per_second = 64'000}},
      {"8 kB/s", {.bytes_per_second = 8'000}},
      {"8 kB/s, 200 ms", {.bytes_per_second = 8'000, .delay = std::chrono::milliseconds(100)}},
      {"cut after each 100 kB", {.faults = {{Fault::Kind::kCut, 100'000}}, .again = true}},
      {"half open after 100 kB, twice",
       {.faults = {{Fault::Kind::kStall, 100'000}, {Fault::Kind::kStall, 100'000}}}},
      {"a bit wrong each 100 kB, ten times",
       {.faults = std::vector<Fault>(10, {Fault::Kind::kCorrupt, 100'000})}},
  };
  cases.push_back(
      {"64 kB/s, away for 30 s", {.bytes_per_second = 64'000}, [](Site&, BadNetwork& network) {
         network.Down(true);
         std::this_thread::sleep_for(std::chrono::seconds(30));
         network.Down(false);
       }});
  cases.push_back({"64 kB/s, server restarted",
                   {.bytes_per_second = 64'000},
                   [](Site& site, BadNetwork& network) {
                     site.Start();
                     network.Redirect(site.address());
                   }});
  return cases;
}

// Repeats a call as a worker does.
template <typename Call>
auto Repeat(const Call& call) {
  auto answer = call();
  while (absl::IsUnavailable(answer.status()) || absl::IsDeadlineExceeded(answer.status()))
    answer = call();
  Check(answer.status(), "transfer");
  return answer;
}

void Run(Site& site, const Case& one, uint64_t seed) {
  const fleet::Blob down = fleet::RandomBlob(kDown, 2 * seed),
                    up = fleet::RandomBlob(kUp, 2 * seed + 1);
  site.handler().Serve(down);
  BadNetwork network(site.address(), one.network);
  const auto link = site.Dial(network.address());
  std::atomic<bool> over = false;
  std::thread disturber([&] {
    if (!one.halfway) return;
    while (network.up() < kUp / 2 && !over)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (!over) one.halfway(site, network);
  });
  const TimePoint start = SteadyClock().Now();
  const auto fetched = Repeat([&] { return link->Fetch({down.digest, down.size, nullptr}); });
  const double fetch = ToSeconds(SteadyClock().Now() - start);
  fleet::CommitRequest request{.session = kSession, .commit_id = seed};
  request.part = fleet::Part{.round = Round(1), .sums = up};
  (void)Repeat([&] { return link->Commit(request); });
  const double commit = ToSeconds(SteadyClock().Now() - start) - fetch;
  over = true;
  disturber.join();
  const auto arrived = site.handler().TakeCommitted();
  const bool right = fetched->digest == down.digest && arrived.size() == 1 &&
                     BlobDigest(arrived[0].part->sums.bytes->bytes()) == up.digest;
  std::printf("| %-34s | %6.1f | %6.1f | %5.0f | %5.0f | %3d | %s |\n", one.name.c_str(), fetch,
              commit, 1e-3 * (static_cast<double>(network.down()) - kDown),
              1e-3 * (static_cast<double>(network.up()) - kUp), network.connections(),
              right ? "yes" : "NO");
  std::fflush(stdout);
  if (!right) std::exit(1);
}

void Main(const std::string& name) {
  const Folder folder;
  Site site(folder / "site");
  std::printf("| network | down s | up s | down, more kB | up, more kB | connections | right |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  uint64_t seed = 0;
  for (const Case& one : Cases())
    if (++seed; absl::StrContains(one.name, name)) Run(site, one, seed);
}

}  // namespace
}  // namespace macaw::bench

int main(int argc, char** argv) {
  macaw::bench::PrintHeading(argc, argv);
  macaw::bench::Main(argc > 1 ? argv[1] : "");
}
