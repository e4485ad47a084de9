#include "identity/signed_head.h"

#include <openssl/evp.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/status.h"
#include "identity/openssl.h"

namespace macaw::identity {
namespace {

using Context = std::unique_ptr<EVP_MD_CTX, FreeWith<EVP_MD_CTX_free>>;

// Of "…/audit.3.jsonl", an older file of a log, the log's own: "audit.jsonl".
std::string LogOf(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const size_t end = name.find('.');
  return absl::StrCat(name.substr(0, end), ".jsonl");
}

// What is signed. The name keeps one log's head from passing for another's.
std::string TextOf(const std::string& name, uint64_t lines, const std::string& head) {
  return absl::StrCat("macaw log head\n", name, "\n", lines, "\n", head, "\n");
}

absl::StatusOr<std::string> Signature(const PrivateKey& key, const std::string& text) {
  const Context context(EVP_MD_CTX_new());
  const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
  size_t size = 0;
  if (EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) != 1 ||
      EVP_DigestSign(context.get(), nullptr, &size, bytes, text.size()) != 1) {
    return OpenSslError("sign");
  }
  std::string signature(size, '\0');
  if (EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                     bytes, text.size()) != 1) {
    return OpenSslError("sign");
  }
  signature.resize(size);
  return signature;
}

bool IsSignature(const std::string& signature, const std::string& text,
                 const Certificate& authority) {
  const Context context(EVP_MD_CTX_new());
  return EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr,
                              X509_get0_pubkey(authority.get())) == 1 &&
         EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                          signature.size(), reinterpret_cast<const unsigned char*>(text.data()),
                          text.size()) == 1;
}

}  // namespace

absl::Status WriteSignedHead(const std::string& path, const ChainedLog& log,
                             const PrivateKey& key) {
  nlohmann::ordered_json json;
  const std::string name = LogOf(path);
  json["log"] = name;
  json["lines"] = log.lines();
  json["head"] = log.head().Hex();
  MACAW_ASSIGN_OR_RETURN(const std::string signature,
                         Signature(key, TextOf(name, log.lines(), log.head().Hex())));
  json["signature"] = absl::BytesToHexString(signature);
  return AtomicWriteFile(path + kHeadSuffix, json.dump() + "\n");
}

absl::StatusOr<std::optional<SignedHead>> ReadSignedHead(const std::string& path,
                                                         const Certificate& authority) {
  const std::string file = path + kHeadSuffix;
  if (!FileExists(file)) return std::nullopt;
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  try {
    const auto json = nlohmann::json::parse(text);
    const auto name = json.at("log").get<std::string>();
    const auto lines = json.at("lines").get<uint64_t>();
    const auto head = json.at("head").get<std::string>();
    const std::string signature = absl::HexStringToBytes(json.at("signature").get<std::string>());
    const absl::StatusOr<Digest> digest = Digest::FromHex(head);
    if (digest.ok() && name == LogOf(path) &&
        IsSignature(signature, TextOf(name, lines, head), authority))
      return SignedHead{lines, *digest};
  } catch (const nlohmann::json::exception&) {
    return absl::DataLossError(absl::StrCat(file, " is not what was written"));
  }
  return absl::DataLossError(
      absl::StrCat(file, " is not signed by the authority \"", authority.subject().name, "\""));
}

}  // namespace macaw::identity
