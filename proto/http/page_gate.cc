#include "proto/http/page_gate.h"

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace macaw::http {
namespace {

constexpr int kUnauthorized = 401;

// Compares in a time that does not tell how much of the token is right.
bool SameToken(absl::string_view a, absl::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned>(a[i] ^ b[b.empty() ? 0 : i % b.size()]);
  return difference == 0 && !b.empty();
}

}  // namespace

std::optional<PageReply> PageGate::Refusal(const PageRequest& request) const {
  if (token_.empty()) {
    if (NamesLoopback(request)) return std::nullopt;
    return RefuseOtherNames();
  }
  if (HasToken(request)) return std::nullopt;
  return PageReply{.status = kUnauthorized,
                   .body =
                       "this page needs the server's token: ?token=..., or Authorization: Bearer "
                       "...\n",
                   .headers = {{"WWW-Authenticate", "Bearer"}}};
}

bool PageGate::HasToken(const PageRequest& request) const {
  const std::string header = request.Header("authorization");
  absl::string_view token = header;
  const bool bearer = absl::ConsumePrefix(&token, "Bearer ");
  return (bearer && SameToken(token, token_)) || SameToken(request.Parameter("token"), token_);
}

}  // namespace macaw::http
