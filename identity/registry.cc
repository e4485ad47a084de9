#include "identity/registry.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace macaw::identity {
namespace {

constexpr char kInvited[] = "invited";
constexpr char kEnrolled[] = "enrolled";
constexpr char kRenewed[] = "renewed";
constexpr char kRevoked[] = "revoked";
constexpr char kAnyClient[] = "any";

std::string Seconds(absl::Time time) { return absl::StrCat(absl::ToUnixSeconds(time)); }

// The details of an entry, each of which must be there.
class Details {
 public:
  explicit Details(const LogEntry& entry) : entry_(entry) {}
  std::string Text(const char* key) {
    const auto it = entry_.details.find(key);
    if (it != entry_.details.end()) return it->second;
    missing_ = key;
    return "";
  }
  int64_t Number(const char* key) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(Text(key), &number)) missing_ = key;
    return number;
  }
  absl::Time Time(const char* key) { return absl::FromUnixSeconds(Number(key)); }
  absl::Status status() const {
    if (missing_ == nullptr) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("entry ", entry_.number, " of the registry (",
                                            entry_.what, ") has no valid ", missing_));
  }

 private:
  const LogEntry& entry_;
  const char* missing_ = nullptr;
};

LogEntry Certified(const char* what, const Certificate& certificate, absl::Time now) {
  return {.time = now,
          .what = what,
          .details = {{"name", certificate.subject().name},
                      {"serial", certificate.serial()},
                      {"until", Seconds(certificate.validity().until)}}};
}

}  // namespace

absl::Status Registry::Apply(const LogEntry& entry) {
  Details details(entry);
  const std::string name = details.Text("name");
  NodeRecord& node = nodes_[name];
  if (entry.what == kInvited) {
    auto grant = std::make_shared<Grant>();
    MACAW_ASSIGN_OR_RETURN(grant->subject.role, ParseRole(details.Text("role")));
    grant->subject.name = name;
    const std::string owns = details.Text("owns");
    grant->owns_any = owns == kAnyClient;
    if (!grant->owns_any) {
      const auto list = nlohmann::json::parse(owns, nullptr, /*allow_exceptions=*/false);
      for (const auto& client : list) {
        if (client.is_string()) grant->owns.push_back(client.get<std::string>());
      }
    }
    MACAW_ASSIGN_OR_RETURN(const Digest secret, Digest::FromHex(details.Text("secret")));
    Forget(node);
    node.invite = secret;
    node.invite_until = details.Time("until");
    node.lifetime = absl::Seconds(details.Number("lifetime"));
    node.grant = std::move(grant);
    invited_[secret] = name;
  } else if (entry.what == kEnrolled || entry.what == kRenewed) {
    if (entry.what == kEnrolled) {
      MACAW_ASSIGN_OR_RETURN(node.used, Digest::FromHex(details.Text("secret")));
      MACAW_ASSIGN_OR_RETURN(node.key, Digest::FromHex(details.Text("key")));
      node.invite.reset();
      node.certificates.clear();
      node.revoked.reset();
    }
    std::erase_if(node.certificates,
                  [&](const Issued& issued) { return issued.until <= entry.time; });
    node.certificates.push_back({details.Text("serial"), details.Time("until")});
    node.last_issued = entry.time;
  } else if (entry.what == kRevoked) {
    Forget(node);
    node.certificates.clear();
    node.revoked = details.Text("why");
  }  // an entry of a later version says nothing to this one
  return details.status();
}

void Registry::Forget(NodeRecord& node) {
  if (node.invite.has_value()) invited_.erase(*node.invite);
  invited_.erase(node.used);
  node.invite.reset();
}

const NodeRecord* Registry::Find(absl::string_view name) const {
  const auto it = nodes_.find(name);
  return it != nodes_.end() ? &it->second : nullptr;
}

const NodeRecord* Registry::FindInvited(const Digest& secret) const {
  const auto it = invited_.find(secret);
  return it != invited_.end() ? Find(it->second) : nullptr;
}

LogEntry Invited(const Grant& grant, const Digest& secret, absl::Duration lifetime,
                 absl::Time until, absl::Time now) {
  return {.time = now,
          .what = kInvited,
          .details = {{"name", grant.subject.name},
                      {"role", std::string(Name(grant.subject.role))},
                      {"owns", grant.owns_any ? kAnyClient : nlohmann::json(grant.owns).dump()},
                      {"secret", secret.Hex()},
                      {"lifetime", absl::StrCat(absl::ToInt64Seconds(lifetime))},
                      {"until", Seconds(until)}}};
}

LogEntry Enrolled(const Certificate& certificate, const Digest& secret, absl::Time now) {
  LogEntry entry = Certified(kEnrolled, certificate, now);
  entry.details["secret"] = secret.Hex();
  entry.details["key"] = certificate.KeyDigest().Hex();
  return entry;
}

LogEntry Renewed(const Certificate& certificate, absl::Time now) {
  return Certified(kRenewed, certificate, now);
}

LogEntry Revoked(const std::string& name, const std::string& why, absl::Time now) {
  return {.time = now, .what = kRevoked, .details = {{"name", name}, {"why", why}}};
}

}  // namespace macaw::identity
