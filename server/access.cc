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
  // Of each role, what it may do it to; in the order of Whose.
  std::array<bool, 3> stranger, node;
};

// A session that is not known is answered "register again", which tells nothing. Who may see the
// run's configuration (Hello) and models (Download) is one of its nodes.
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
