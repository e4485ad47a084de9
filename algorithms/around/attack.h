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
//
// Every channel up is attacked, numbers such as FedNova's ‖a‖₁ among them. Parameters only: what
// clients send as batch-norm statistics is what they would send honestly, for inner-product and
// alie the honest mean, and a free-rider's zero. μ and σ of a channel are taken as the channel
// combines clients: weighted where it is weighted. A channel's bound does not hold what these two
// kinds send, since that is made after the sums. In a round without an honest client they send
// zeros.
//
// A hostile client's state and metrics are those that the rule concludes from its honest work. A
// free-rider concludes nothing: its state does not change, and its metrics are 0.
//
// Adds the rule metrics `attackers`, the hostile ones among a round's counted clients, and for alie
// `attack_z`, the z of the round, where some of its clients are hostile and some are not.
Description Attacked(Description rule, const AttackConfig& attack, HostileClients hostile);

// What the halves below share. Immutable.
struct Attack {
  AttackConfig config;
  HostileClients hostile;

  bool Hits(ClientId client) const { return hostile.Contains(client); }
};

// Channels that inner-product and alie add, from which the server half makes what hostile clients
// would have sent: how many clients are honest, which part of the weight is theirs, and for alie
// the squares of what they send. A hostile client sends zeros on all channels. So memory does not
// grow with the clients. A channel that collects vectors needs none: there the rows are replaced.
inline constexpr char kHonestCount[] = "attack_honest";          // plain mean of 1 or 0
inline constexpr char kHonestWeight[] = "attack_honest_weight";  // weighted mean of 1 or 0
std::string SquaresOf(absl::string_view channel);                // mean of u², in f64
inline constexpr char kAttackersMetric[] = "attackers";
inline constexpr char kDeviationsMetric[] = "attack_z";

// The rule's schema with these channels and the metric.
Schema WithAttack(Schema schema, const AttackConfig& attack);

std::unique_ptr<ClientAlgorithm> MakeAttackedClient(std::unique_ptr<ClientAlgorithm> inner,
                                                    std::shared_ptr<const Attack> attack,
                                                    const Schema& rule, LayoutPtr model);
// For inner-product and alie; the other kinds leave the server half alone.
std::unique_ptr<ServerAlgorithm> MakeAttackedServer(std::unique_ptr<ServerAlgorithm> inner,
                                                    std::shared_ptr<const Attack> attack,
                                                    Schema rule);

// alie's z_max: with n clients, m of them hostile, Φ⁻¹((n − m − s)/(n − m)), s = ⌊n/2 + 1⌋ − m the
// honest clients that must be outvoted for a majority; at least 0, and at most 3 (a hostile
// majority outvotes without them).
double AlieDeviations(double n, double m);

}  // namespace macaw::algorithms
