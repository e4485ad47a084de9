#include "server/access.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace macaw::server {
namespace {

using fleet::Role;

// All combinations of role, call and object. Every combination that is not listed here is refused.
TEST(Access, IsWhatThisListSays) {
  const Call calls[] = {Call::kHello,  Call::kRegister, Call::kLease, Call::kHeartbeat,
                        Call::kCommit, Call::kRelease,  Call::kOffer, Call::kDownload};
  std::set<std::tuple<Role, Call, Whose>> allowed;
  for (const Role role : {Role::kNode, Role::kDevice}) {
    for (const Call call : calls) {
      allowed.insert({role, call, Whose::kOwn});
      if (call != Call::kRegister) allowed.insert({role, call, Whose::kNobodys});
    }
  }
  for (const Role role : {Role::kStranger, Role::kNode, Role::kDevice, Role::kOperator}) {
    for (const Call call : calls) {
      for (const Whose whose : {Whose::kNobodys, Whose::kOwn, Whose::kAnothers}) {
        const absl::Status status = CheckAccess({.role = role, .node = "w"}, call, whose);
        EXPECT_EQ(status.ok(), allowed.contains({role, call, whose}))
            << static_cast<int>(role) << " " << static_cast<int>(call) << " "
            << static_cast<int>(whose);
        EXPECT_TRUE(status.ok() || absl::IsPermissionDenied(status)) << status;
      }
    }
  }
}

}  // namespace
}  // namespace macaw::server
