#include "training/api/end_vector.h"

#include <stdexcept>
#include <string>

namespace macaw::training {

ConstVectorView EndVector::view() const {
  if (const absl::Status status = Fetch(); !status.ok())
    throw std::runtime_error(std::string(status.message()));
  if (left_ == nullptr) return host_;
  return {host_.layout, std::span(place(), host_.layout->bytes())};
}

}  // namespace macaw::training
