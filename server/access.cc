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
  // For each role: whether it may make the call, indexed by Whose.
  std::array<bool, 3> stranger, node;
};

// A call in an unknown session is allowed: its answer is "register again", which reveals nothing.
// Only nodes of the run may see its configuration (Hello) and models (Download).
constexpr std::array<bool, 3> kNever = {false, false, false};
constexpr std::array<bool, 3> kNotAnothers = {true, true, false};
constexpr Rule kRules[] = {
    {Call::kHello, "Hello", kNever, kNotAnothers},
    {Call::kRegister, "Register", kNever, {false, true, false}},
    {Call::kLease, "Lease", kNever, kNotAnothers},
    {Call::kHeartbeat, "Heartbeat", kNever, kNotAnothers},
    {Call::kCommit, "Commit", kNever, kNotAnothers},
    {Call::kRelease, "Release", kNever, kNotAnothers},
    {Call::kOffer, "BeginUpload", kNever, kNotAnothers},
    {Call::kDownload, "Download", kNever, kNotAnothers},
};

}  // namespace

absl::Status CheckAccess(const fleet::Caller& caller, Call call, Whose whose) {
  const Rule& rule = *std::ranges::find(kRules, call, &Rule::call);
  const std::array<bool, 3>& row = caller.role == Role::kNode ? rule.node : rule.stranger;
  if (row[static_cast<size_t>(whose)]) return absl::OkStatus();
  if (caller.role == Role::kStranger) {
    return absl::PermissionDeniedError(
        absl::StrCat(rule.name,
                     ": this server answers the nodes of its run only; give the worker "
                     "the token of one of them (MACAW_TOKEN)"));
  }
  return absl::PermissionDeniedError(
      absl::StrCat(rule.name, ": \"", caller.node, "\" speaks for itself and for no other node"));
}

}  // namespace macaw::server
