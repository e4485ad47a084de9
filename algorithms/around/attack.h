#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "algorithms/around/registry.h"
#include "plan/attack.h"

namespace macaw::algorithms {

// Simulated attackers around a rule, which does not know of them: its hostile clients
// (HostileClients) send something else than what it concludes. Let u be what an honest client would
// send on a channel.
//
//   label-flip     scale·u, from labels y → classes − 1 − y; the rows are changed where they are
//                  loaded (data/label_map.h)
//   sign-flip      −scale·u
//   scaling        scale·u (Bagdasaryan et al. 2020, "How To Backdoor Federated Learning": model
//                  replacement)
//   free-rider     zeros, and on channels of the model's layout N(0, noise²) on each parameter; it
//                  does not train (Fraboni, Vidal, Lorenzi 2021, "Free-rider Attacks on Model
//                  Aggregation in Federated Learning")
//   inner-product  −scale·μ, μ the mean over the round's honest clients (Xie, Koyejo, Gupta 2019,
//                  "Fall of Empires")
//   alie           μ − z·σ, σ the honest clients' deviation of each coordinate (Baruch, Baruch,
//                  Goldberg 2019, "A Little Is Enough")
//   min-max        μ + γ·p with the largest γ for which it is no farther from any honest client
//                  than two honest ones are from each other; p: −σ, −μ/‖μ‖ or −sign(μ)
//                  (Shejwalkar, Houmansadr 2021, "Manipulating the Byzantine")
//   min-sum        the same with the sum of its squared distances, at most the largest sum of an
//                  honest client
//   mimic          what the round's honest client with the smallest number sends (Karimireddy, He,
//                  Jaggi 2022, "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing")
//   backdoor       scale·u, from rows of which a share has a trigger and the target class (Gu,
//                  Dolan-Gavitt, Garg 2017, "BadNets"; Bagdasaryan et al. 2020); the rows are
//                  changed where they are loaded (data/trigger.h)
//
// Every channel up is attacked, numbers such as FedNova's ‖a‖₁ among them. Parameters only: what
// clients send as batch-norm statistics is what they would send honestly, for inner-product, alie,
// min-max and min-sum the honest mean, for mimic whose it copies, and a free-rider's zero. μ and σ
// of a channel are taken as the channel combines clients: weighted where it is weighted; min-max
// and min-sum take plain ones (attack_rows.h). A channel's bound does not hold what these kinds
// send, since that is made after the sums. In a round without an honest client they send zeros.
// A client that says its weight (api/reported_weight.h) says an honest one.
//
// A hostile client's state and metrics are those that the rule concludes from its honest work. A
// free-rider concludes nothing: its state does not change, and its metrics are 0.
//
// Adds the rule metrics `attackers`, the hostile ones among a round's counted clients, and where
// some of a round's clients are hostile and some are not, `attack_z`, the z of alie, and
// `attack_gamma`, the γ of min-max and min-sum on the rule's first channel.
Description Attacked(Description rule, const AttackConfig& attack, HostileClients hostile);

// What the halves below share. Immutable.
struct Attack {
  AttackConfig config;
  HostileClients hostile;

  bool Hits(ClientId client) const { return hostile.Contains(client); }
};

// Channels that the kinds which know honest updates add, from which the server half makes what
// hostile clients would have sent: how many clients are honest, which part of the weight is theirs,
// and for alie the squares of what they send. A hostile client sends zeros on all channels. So
// memory does not grow with the clients; but min-max, min-sum and mimic need each honest update,
// and collect them. A channel of the rule's that collects vectors needs none: there the rows are
// replaced.
inline constexpr char kHonestCount[] = "attack_honest";          // plain mean of 1 or 0
inline constexpr char kHonestWeight[] = "attack_honest_weight";  // weighted mean of 1 or 0
std::string SquaresOf(absl::string_view channel);                // mean of u², in f64
std::string EachOf(absl::string_view channel);                   // each u
inline constexpr char kAttackersMetric[] = "attackers";
inline constexpr char kDeviationsMetric[] = "attack_z";
inline constexpr char kGammaMetric[] = "attack_gamma";

// The rule's schema with these channels and the metric.
Schema WithAttack(Schema schema, const AttackConfig& attack);

std::unique_ptr<ClientAlgorithm> MakeAttackedClient(std::unique_ptr<ClientAlgorithm> inner,
                                                    std::shared_ptr<const Attack> attack,
                                                    const Schema& rule, LayoutPtr model);
// For the omniscient kinds; the other ones leave the server half alone.
std::unique_ptr<ServerAlgorithm> MakeAttackedServer(std::unique_ptr<ServerAlgorithm> inner,
                                                    std::shared_ptr<const Attack> attack,
                                                    Schema rule);

// alie's z_max: with n clients, m of them hostile, Φ⁻¹((n − m − s)/(n − m)), s = ⌊n/2 + 1⌋ − m the
// honest clients that must be outvoted for a majority; at least 0, and at most 3 (a hostile
// majority outvotes without them).
double AlieDeviations(double n, double m);

}  // namespace macaw::algorithms
