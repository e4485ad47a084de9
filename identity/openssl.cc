#include "identity/openssl.h"

#include <openssl/err.h>

#include "absl/strings/str_cat.h"

namespace macaw::identity {

BioPtr Reading(absl::string_view text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

BioPtr Writing() { return BioPtr(BIO_new(BIO_s_mem())); }

std::string Written(const BioPtr& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return size > 0 ? std::string(data, static_cast<size_t>(size)) : "";
}

absl::Status OpenSslError(absl::string_view what) {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* const reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
  return absl::InvalidArgumentError(
      absl::StrCat("cannot ", what, ": ", reason != nullptr ? reason : "OpenSSL gave no reason"));
}

}  // namespace macaw::identity
