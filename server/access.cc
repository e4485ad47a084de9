#include "server/access.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace macaw::server {
namespace {

using fleet::Role;

struct Rule {
  Call call;
  const char* name;
  // Whether a node or device may make the call, indexed by Whose. Nobody else may make any.
  std::array<bool, 3> node;
};

// A call in an unknown session is allowed: its answer is "register again", which reveals nothing.
// Only nodes of the run may see its configuration (Hello) and models (Download).
constexpr std::array<bool, 3> kNever = {false, false, false};
constexpr std::array<bool, 3> kNotAnothers = {true, true, false};
constexpr Rule kRules[] = {
    {Call::kHello, "Hello", kNotAnothers},
    {Call::kRegister, "Register", {false, true, false}},
    {Call::kLease, "Lease", kNotAnothers},
    {Call::kHeartbeat, "Heartbeat", kNotAnothers},
    {Call::kCommit, "Commit", kNotAnothers},
    {Call::kRelease, "Release", kNotAnothers},
    {Call::kOffer, "BeginUpload", kNotAnothers},
    {Call::kDownload, "Download", kNotAnothers},
};

}  // namespace

absl::Status CheckAccess(const fleet::Caller& caller, Call call, Whose whose) {
  const Rule& rule = *std::ranges::find(kRules, call, &Rule::call);
  const bool trains = caller.role == Role::kNode || caller.role == Role::kDevice;
  const std::array<bool, 3>& row = trains ? rule.node : kNever;
  if (row[static_cast<size_t>(whose)]) return absl::OkStatus();
  if (caller.role == Role::kStranger) {
    return absl::PermissionDeniedError(
        absl::StrCat(rule.name,
                     ": this server answers the nodes of its run only; give the worker "
                     "a certificate (macaw-worker enrol), or the token of one of them "
                     "(MACAW_TOKEN)"));
  }
  if (!trains) {
    return absl::PermissionDeniedError(
        absl::StrCat(rule.name, ": \"", caller.node, "\" is an operator and trains nothing"));
  }
  return absl::PermissionDeniedError(
      absl::StrCat(rule.name, ": \"", caller.node, "\" speaks for itself and for no other node"));
}

}  // namespace macaw::server
