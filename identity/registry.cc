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
constexpr char kAssigned[] = "assigned";
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

std::string ClientsText(const std::vector<std::string>& owns, bool owns_any) {
  return owns_any ? kAnyClient : nlohmann::json(owns).dump();
}

void ReadClients(const std::string& text, Grant& grant) {
  grant.owns.clear();
  grant.owns_any = text == kAnyClient;
  if (grant.owns_any) return;
  for (const auto& client : nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false)) {
    if (client.is_string()) grant.owns.push_back(client.get<std::string>());
  }
}

LogEntry Certified(const char* what, const Certificate& certificate, absl::Time now) {
  return {.time = now,
          .what = what,
          .details = {{"name", certificate.subject().name},
                      {"serial", certificate.serial()},
                      {"until", Seconds(certificate.validity().until)}}};
}

}  // namespace

absl::Status Registry::ApplyInvited(const LogEntry& entry, NodeRecord& node) {
  Details details(entry);
  auto grant = std::make_shared<Grant>();
  MACAW_ASSIGN_OR_RETURN(grant->subject.role, ParseRole(details.Text("role")));
  grant->subject.name = details.Text("name");
  ReadClients(details.Text("owns"), *grant);
  if (node.invite.has_value()) invited_.erase(node.invite->secret);
  OpenInvite& invite = node.invite.emplace();
  MACAW_ASSIGN_OR_RETURN(invite.secret, Digest::FromHex(details.Text("secret")));
  invite.until = details.Time("until");
  invite.lifetime = absl::Seconds(details.Number("lifetime"));
  invite.grant = std::move(grant);
  invited_[invite.secret] = details.Text("name");
  return details.status();
}

absl::Status Registry::ApplyEnrolled(const LogEntry& entry, NodeRecord& node) {
  Details details(entry);
  if (!node.invite.has_value()) {
    return absl::DataLossError(
        absl::StrCat("entry ", entry.number, " of the registry enrols a node without an invite"));
  }
  MACAW_ASSIGN_OR_RETURN(node.key, Digest::FromHex(details.Text("key")));
  node.grant = node.invite->grant;
  node.lifetime = node.invite->lifetime;
  node.invite->used = true;
  node.certificates.clear();
  node.revoked.reset();
  return details.status();
}

void SetClients(std::vector<std::string> clients, Grant& grant) {
  if (clients.empty()) clients = {grant.subject.name};
  grant.owns_any = clients == std::vector<std::string>{"*"};
  grant.owns = grant.owns_any ? std::vector<std::string>() : std::move(clients);
}

absl::Status Registry::Apply(const LogEntry& entry) {
  Details details(entry);
  NodeRecord& node = nodes_[details.Text("name")];
  if (entry.what == kInvited) {
    MACAW_RETURN_IF_ERROR(ApplyInvited(entry, node));
  } else if (entry.what == kEnrolled || entry.what == kRenewed) {
    if (entry.what == kEnrolled) MACAW_RETURN_IF_ERROR(ApplyEnrolled(entry, node));
    std::erase_if(node.certificates,
                  [&](const Issued& issued) { return issued.until <= entry.time; });
    node.certificates.push_back({details.Text("serial"), details.Time("until")});
  } else if (entry.what == kAssigned && node.grant != nullptr) {
    auto grant = std::make_shared<Grant>(*node.grant);
    ReadClients(details.Text("owns"), *grant);
    node.grant = std::move(grant);
  } else if (entry.what == kRevoked) {
    if (node.invite.has_value()) invited_.erase(node.invite->secret);
    node.invite.reset();
    node.certificates.clear();
    node.revoked = details.Text("why");
  }  // an entry of a later version says nothing to this one
  return details.status();
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
                      {"owns", ClientsText(grant.owns, grant.owns_any)},
                      {"secret", secret.Hex()},
                      {"lifetime", absl::StrCat(absl::ToInt64Seconds(lifetime))},
                      {"until", Seconds(until)}}};
}

LogEntry Enrolled(const Certificate& certificate, absl::Time now) {
  LogEntry entry = Certified(kEnrolled, certificate, now);
  entry.details["key"] = certificate.KeyDigest().Hex();
  return entry;
}

LogEntry Renewed(const Certificate& certificate, absl::Time now) {
  return Certified(kRenewed, certificate, now);
}

LogEntry Assigned(const std::string& name, const std::vector<std::string>& owns, bool owns_any,
                  absl::Time now) {
  return {.time = now,
          .what = kAssigned,
          .details = {{"name", name}, {"owns", ClientsText(owns, owns_any)}}};
}

LogEntry Revoked(const std::string& name, const std::string& why, absl::Time now) {
  return {.time = now, .what = kRevoked, .details = {{"name", name}, {"why", why}}};
}

}  // namespace macaw::identity
