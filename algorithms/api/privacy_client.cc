#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "algorithms/api/channels.h"
#include "algorithms/api/privacy.h"
#include "algorithms/api/vector_math.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

// What is kept free of C: more than rounding to float and to the sums' grid can add to a norm.
constexpr double kMargin = 0x1p-20;

class PrivateClient final : public ClientAlgorithm {
 public:
  PrivateClient(std::unique_ptr<ClientAlgorithm> inner, Schema rule, const Privacy& privacy)
      : inner_(std::move(inner)),
        rule_(std::move(rule)),
        number_(privacy.config.adaptive() ? WithPrivacy(rule_, privacy).up.back().layout : nullptr),
        config_(privacy.config) {
    rule_.metrics.clear();  // they pass as they are
  }

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    return inner_->Prepare(context, workspace);
  }
  absl::StatusOr<training::LocalPlan> Continue(const ClientContext& context,
                                               std::span<const training::StageOutcome> outcomes,
                                               Workspace& workspace) const override {
    return inner_->Continue(context, outcomes, workspace);
  }
  absl::StatusOr<training::Point> EvaluationPoint(const ClientContext& context,
                                                  Workspace& workspace) const override {
    return inner_->EvaluationPoint(context, workspace);
  }

  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    MACAW_ASSIGN_OR_RETURN(ClientResult result, inner_->Conclude(context, outcomes, workspace));
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
    result.up.clear();
    for (size_t c = 0; c < sent.size(); ++c) {
      ConstVectorView value = sent[c];
      if (!(norm <= most)) {  // a norm that is no number goes on, and the client is left out
        const VectorView clipped = workspace.Vector(rule_.up[c].layout);
        Copy(value, clipped);
        ScaleParameters(most / norm, clipped);
        value = clipped;
      }
      result.up.push_back({rule_.up[c].name, value});
    }
    if (config_.adaptive()) {
      const VectorView shorter = workspace.Vector(number_);
      shorter.As<double>()[0] = norm <= most ? 0.5 : -0.5;
      result.up.push_back({kShorterChannel, ConstVectorView(shorter)});
    } else {
      result.metrics.emplace_back("clipped", norm <= most ? 0.0 : 1.0);
    }
    return result;
  }

 private:
  const std::unique_ptr<ClientAlgorithm> inner_;
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
