#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "algorithms/api/vector_math.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/decorated.h"
#include "algorithms/around/privacy.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

// What is kept free of C: more than rounding to float and to the sums' grid can add to a norm.
constexpr double kMargin = 0x1p-20;

class PrivateClient final : public DecoratedClient {
 public:
  PrivateClient(std::unique_ptr<ClientAlgorithm> inner, Schema rule, const Privacy& privacy)
      : DecoratedClient(std::move(inner)),
        rule_(std::move(rule)),
        number_(privacy.config.adaptive() ? WithPrivacy(rule_, privacy).up.back().layout : nullptr),
        config_(privacy.config) {
    rule_.metrics.clear();  // they pass as they are
  }

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    MACAW_ASSIGN_OR_RETURN(ClientResult result, inner().Conclude(context, outcomes, workspace));
    // Parallel to the rule's channels; an error if they do not fit these.
    const ClientResult vectors{.up = std::move(result.up)};
    MACAW_ASSIGN_OR_RETURN(const std::vector<ConstVectorView> sent,
                           UpViews(rule_, context.phase, vectors, workspace));
    double squares = 0;
    for (const ConstVectorView& vector : sent) squares += SquaredNorm(vector);
    const double norm = std::sqrt(squares);
    const double clip =
        config_.adaptive() ? context.Down(kClipChannel).As<double>()[0] : config_.clip;
    const double most = clip * (1 - kMargin);
    const bool clipped = !(norm <= most);  // a norm that is no number: the client is left out
    result.up.clear();
    for (size_t c = 0; c < sent.size(); ++c) {
      ConstVectorView value = sent[c];
      const LayoutPtr& layout = rule_.up[c].layout;
      if (clipped || layout->parameter_size() < layout->size()) {
        const VectorView safe = workspace.Vector(layout);
        Copy(value, safe);
        if (clipped) ScaleParameters(most / norm, safe);
        ZeroBuffers(safe);  // neither the norm nor the noise covers them
        value = safe;
      }
      result.up.push_back({rule_.up[c].name, value});
    }
    if (clipped) MACAW_RETURN_IF_ERROR(inner().Sent(context, result, workspace));
    if (config_.adaptive()) {
      const VectorView shorter = workspace.Vector(number_);
      shorter.As<double>()[0] = clipped ? -0.5 : 0.5;
      result.up.push_back({kShorterChannel, ConstVectorView(shorter)});
    } else {
      result.metrics.emplace_back("clipped", clipped ? 1.0 : 0.0);
    }
    return result;
  }

 private:
  Schema rule_;             // of the rule alone
  const LayoutPtr number_;  // of kShorterChannel
  const PrivacyConfig config_;
};

}  // namespace

std::unique_ptr<ClientAlgorithm> MakePrivateClient(std::unique_ptr<ClientAlgorithm> inner,
                                                   Schema rule, const Privacy& privacy) {
  return std::make_unique<PrivateClient>(std::move(inner), std::move(rule), privacy);
}

}  // namespace macaw::algorithms
