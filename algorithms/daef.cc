#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/builtin.h"
#include "algorithms/daef_sums.h"
#include "algorithms/linear_chain.h"
#include "algorithms/statistics.h"
#include "algorithms/symmetric.h"
#include "core/status.h"
#include "models/singular_values.h"

// DAEF: Novoa-Paradela, Fontenla-Romero, Guijarro-Berdiñas, "Fast deep autoencoder for federated
// learning", Pattern Recognition 143, 2023. A deep autoencoder in closed form, a layer after
// another, and so a phase a layer:
//
// - The encoder, x ↦ f₁(U₁ᵀx): U₁ has the first left singular vectors of all rows X as columns,
//   which are the first eigenvectors of Σ xxᵀ. Features are not centred.
// - A hidden layer of the decoder, h ↦ f(W·h + b), is the second half of an autoencoder of one
//   hidden layer (ELM-AE: Kasun et al., "Representational learning with extreme learning machine
//   for big data", 2013). Its first half is random: u = f(R·h + b). Its second half V is solved for
//   such that f⁻(V·u + c) is h, and W = Vᵀ. R and b are the layer's initial values, which all
//   clients have, and b stays: c belongs to the layer before.
// - The last layer is linear, and solved for such that it returns x.
//
// ROLANN (Fontenla-Romero, Guijarro-Berdiñas, Pérez-Sánchez, "Regularized one-layer neural networks
// for distributed and incremental environments", 2021) solves for a layer before its activation: of
// output k it minimises Σ (f'(z_k)·(z_k − v_k·ũ))² + λ‖v_k‖², with ũ = (u, 1) and z_k the target's
// inverse. Here the targets of a hidden layer are outputs of the layer before, so z is what came
// into that activation, and no inverse has to be taken. Its U·S are sent here as the Gram matrices
// U·S²·Uᵀ, which add up exactly.

namespace macaw::algorithms {
namespace {

constexpr char kWhatDaefDoes[] = "daef solves for the linear layers of an autoencoder";
constexpr char kReconstruction[] = "error";  // metric: mean (x − x̂)² of a feature
constexpr char kAutoencoded[] = "rows";      // metric: rows in the sums
constexpr size_t kMostDaefLayers = kMostPhases;
constexpr uint64_t kMostDaefSums = uint64_t{1} << 26;  // numbers of a phase

class DaefServer final : public StatisticsServer {
 public:
  DaefServer(const Setup& setup, LinearChain chain, FlatVector model)
      : StatisticsServer(model.Clone()),
        chain_(std::move(chain)),
        lambda_hidden_(setup.Get<double>("lambda_hidden")),
        lambda_last_(setup.Get<double>("lambda_last")),
        draft_(model.Clone()),
        initial_(kept_.Vector("initial", std::move(model))) {}

  absl::StatusOr<Broadcast> Configure(const ServerContext& context) const override {
    if (context.phase == Phase(0)) return Broadcast{{"model", Model()}};
    return Broadcast{{"model", draft_.view()}};
  }

  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    const ConstVectorView sums = ChannelOf(aggregate, SumsOf(context.phase)).value.view();
    const double rows = SumsEntry(sums, sums.layout->entries().size() - 1)[0];
    if (rows < 1) {  // no client counted, or one that has lied
      ReportOnSums(context, "daef", rows == 0);
      return AfterApply::kRoundDone;
    }
    const size_t layer = context.phase.value;
    double error = 0;
    DispatchDType(model_.dtype(), [&]<typename T>(T) {
      if (layer == 0) {
        Copy(initial_, draft_.view());
        SolveEncoder<T>(sums);
      } else {
        error = SolveDecoder<T>(Decoding::Of(chain_, layer), sums);
      }
    });
    const bool kept = IsFinite(draft_.view());
    ReportOnSums(context, "daef", kept);
    if (!kept) return AfterApply::kRoundDone;
    if (layer + 1 < chain_.layers.size()) return AfterApply::kNextPhase;
    Copy(draft_.view(), model_);
    context.Report(kAutoencoded, rows);
    context.Report(kReconstruction, error / (rows * static_cast<double>(chain_.layers[0].inputs)));
    return AfterApply::kRoundDone;
  }

 private:
  // Rows of W₁ are the first eigenvectors. Of both signs each has the one with which its largest
  // element is positive.
  template <typename T>
  void SolveEncoder(ConstVectorView sums) {
    const LinearChain::Layer& layer = chain_.layers[0];
    const size_t width = layer.inputs;
    const std::span<const double> upper = SumsEntry(sums, EncoderEntry::kGram);
    std::vector<double> gram(width * width);
    for (size_t i = 0; i < width; ++i) {
      for (size_t j = i; j < width; ++j)
        gram[i * width + j] = gram[j * width + i] = upper[i * width + j];
    }
    const models::SingularValues found =
        models::LargestSingularValues(gram, width, width, layer.outputs);
    const std::span<T> model = draft_.view().As<T>();
    for (size_t k = 0; k < layer.outputs; ++k) {
      const std::span<const double> vector(found.right.data() + k * width, width);
      const auto less = [](double a, double b) { return std::abs(a) < std::abs(b); };
      const double sign = *std::ranges::max_element(vector, less) < 0 ? -1 : 1;
      for (size_t i = 0; i < width; ++i)
        model[layer.weight + k * width + i] = static_cast<T>(sign * vector[i]);
      if (layer.bias) model[*layer.bias + k] = 0;
    }
  }

  // Returns Σ f'²·(z − v·ũ)² over outputs and rows, of the weights as the model has them.
  template <typename T>
  double SolveDecoder(const Decoding& it, ConstVectorView sums) {
    const LinearChain::Layer& layer = chain_.layers[it.layer];
    const std::vector<double> solution = Solution(it, sums);
    const std::span<T> model = draft_.view().As<T>();
    std::vector<double> v(it.terms);
    double error = SumsEntry(sums, DecoderEntry::kSquares)[0];
    for (size_t k = 0; k < it.targets; ++k) {
      for (size_t j = 0; j < it.terms; ++j) {
        const T value = static_cast<T>(solution[k * it.terms + j]);
        v[j] = double{value};
        if (!it.last) {
          // W = Vᵀ; the bias of V is of the layer before, which is solved.
          if (j < layer.outputs) model[layer.weight + j * layer.inputs + k] = value;
        } else if (j < layer.inputs) {
          model[layer.weight + k * layer.inputs + j] = value;
        } else {
          model[*layer.bias + k] = value;
        }
      }
      error += Change(it, sums, k, v);
    }
    return std::max(error, 0.0);
  }

  // v of each output [K, terms].
  std::vector<double> Solution(const Decoding& it, ConstVectorView sums) const {
    const size_t terms = it.terms, together = it.alike ? it.targets : 1;
    const double lambda = it.last ? lambda_last_ : lambda_hidden_;
    const std::span<const double> grams = SumsEntry(sums, DecoderEntry::kGrams),
                                  all = SumsEntry(sums, DecoderEntry::kMoments);
    std::vector<double> solution(it.targets * terms), gram(terms * terms), v(terms * together);
    for (size_t first = 0; first < it.targets; first += together) {
      const size_t g = it.alike ? 0 : first;
      std::ranges::copy(grams.subspan(g * gram.size(), gram.size()), gram.begin());
      for (size_t i = 0; i < terms; ++i) gram[i * terms + i] += lambda;
      for (size_t k = 0; k < together; ++k) {
        for (size_t i = 0; i < terms; ++i) v[i * together + k] = all[(first + k) * terms + i];
      }
      SolveSymmetric(terms, together, gram, v);
      for (size_t k = 0; k < together; ++k) {
        for (size_t i = 0; i < terms; ++i) solution[(first + k) * terms + i] = v[i * together + k];
      }
    }
    return solution;
  }

  // vᵀ·G·v − 2·v·m: what output k adds to the error beside Σ f'²·z².
  static double Change(const Decoding& it, ConstVectorView sums, size_t k,
                       const std::vector<double>& v) {
    const size_t terms = it.terms;
    const double* const gram =
        SumsEntry(sums, DecoderEntry::kGrams).data() + (it.alike ? 0 : k) * terms * terms;
    const double* const moment = SumsEntry(sums, DecoderEntry::kMoments).data() + k * terms;
    double change = 0;
    for (size_t i = 0; i < terms; ++i) {
      double row = gram[i * terms + i] * v[i];
      for (size_t j = i + 1; j < terms; ++j) row += 2 * gram[i * terms + j] * v[j];
      change += v[i] * (row - 2 * moment[i]);
    }
    return change;
  }

  const LinearChain chain_;
  const double lambda_hidden_, lambda_last_;
  FlatVector draft_;  // of an open round, so it is not saved
  const VectorView initial_;
};

absl::StatusOr<LinearChain> AutoencoderOf(const Setup& setup) {
  if (setup.task != TaskKind::kReconstruction) {
    return absl::InvalidArgumentError(absl::StrCat(kWhatDaefDoes, ", and run.task is \"",
                                                   Name(setup.task),
                                                   "\": set it to \"reconstruction\""));
  }
  MACAW_ASSIGN_OR_RETURN(LinearChain chain, LinearChain::Of(setup, kWhatDaefDoes));
  const std::vector<LinearChain::Layer>& layers = chain.layers;
  const auto refuse = [](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(why...));
  };
  const size_t width = layers.front().inputs;
  if (layers.size() < 2) {
    return refuse(kWhatDaefDoes,
                  ", an encoder and one or more of a decoder: write [\"linear K\", "
                  "\"tanh\", \"linear ",
                  width, "\"] for ", width, " features");
  }
  if (layers.size() > kMostDaefLayers) {
    return refuse("daef takes a phase a layer, ", kMostDaefLayers, " at most, and the model has ",
                  layers.size(), " linear layers: take some out");
  }
  if (layers.back().outputs != width || layers.back().after != Activation::kNone) {
    return refuse("daef's model returns its ", width, " inputs: end model.layers with \"linear ",
                  width, "\"");
  }
  if (layers.front().outputs > width) {
    return refuse("daef's encoder has at most as many outputs as there are features: make layer 1 ",
                  "narrower than ", layers.front().outputs, ", of ", width, " at most");
  }
  if (uint64_t{width} * width > kMostDaefSums) {
    return refuse("a client would send ", width, "² sums for the encoder, of ", kMostDaefSums,
                  " at most: take fewer features");
  }
  for (size_t l = 1; l < layers.size(); ++l) {
    const Decoding it = Decoding::Of(chain, l);
    const uint64_t numbers = uint64_t{it.grams()} * it.terms * it.terms;
    if (numbers <= kMostDaefSums) continue;
    return refuse("a client would send ", numbers, " sums for linear layer ", l + 1, ", of ",
                  kMostDaefSums, " at most: make it narrower",
                  it.alike ? "" : ", or leave the activation before it out");
  }
  return chain;
}

absl::StatusOr<Schema> DaefSchema(const Setup& setup) {
  MACAW_ASSIGN_OR_RETURN(const LinearChain chain, AutoencoderOf(setup));
  MACAW_ASSIGN_OR_RETURN(std::vector<LayoutPtr> layouts, DaefLayouts(chain));
  return StatisticsSchema(setup, std::move(layouts), {kReconstruction, kAutoencoded});
}

absl::StatusOr<std::unique_ptr<ClientAlgorithm>> DaefClient(const Setup& setup) {
  MACAW_ASSIGN_OR_RETURN(const LinearChain chain, AutoencoderOf(setup));
  MACAW_ASSIGN_OR_RETURN(const std::vector<LayoutPtr> layouts, DaefLayouts(chain));
  return std::make_unique<StatisticsClient>(DaefSums(chain, layouts));
}

std::vector<std::string> DaefNotes(const Setup& setup) {
  if (setup.clients == 0 || MeanClients(setup) >= static_cast<double>(setup.clients)) return {};
  return {
      "daef solves for the whole model in each round, from the rows of that round's clients alone: "
      "set cohort.size to all clients, and one round is enough"};
}

}  // namespace

Description Daef() {
  return StatisticsRule({
      .name = "daef",
      .summary = "DAEF: a deep autoencoder in closed form, a layer a phase, done after one round",
      .paper =
          "Novoa-Paradela, Fontenla-Romero and Guijarro-Berdiñas, 2023, Fast deep autoencoder for "
          "federated learning",
      .formula =
          "phase 0  up Σ xxᵀ; rows of W₁: its first eigenvectors; h = f₁(W₁·x)\n"
          "phase l  u = f(R·h + b), R and b the layer's initial ones, ũ = (u, 1), h = f₀(z)\n"
          "         up, of each k: Σ f₀'(z_k)²·ũũᵀ, Σ f₀'(z_k)²·z_k·ũ\n"
          "         v_k: the minimum of Σ (f₀'(z_k)·(z_k − v_k·ũ))² + λ‖v_k‖²      λ: lambda_hidden\n"
          "         W = Vᵀ without the column of 1; then h ← f(W·h + b)\n"
          "last     up Σ h̃h̃ᵀ, Σ h̃xᵀ, h̃ = (h, 1)\n"
          "         W, b: the minimum of Σ ‖x − W·h − b‖² + λ(‖W‖² + ‖b‖²)      λ: lambda_last",
      .parameters = {{.name = "lambda_hidden",
                      .default_value = 1.0,
                      .help = "λ of the decoder's hidden layers, beside a sum over rows",
                      .minimum = 0},
                     {.name = "lambda_last",
                      .default_value = 1.0,
                      .help = "λ of the last layer, beside a sum over rows",
                      .minimum = 0}},
      .remarks =
          "The task is run.task = \"reconstruction\", and the model a chain of linear layers, each "
          "but the last with \"tanh\", \"sigmoid\" or nothing behind it: [\"linear 8\", \"tanh\", "
          "\"linear 16\", \"tanh\", \"linear D\"] for rows of D features, with \"flatten\" in front for "
          "images. Losses are mean squared errors of a feature, rule_error is that over the training "
          "rows that were summed; a row that is unlike those has a larger one. All clients in one "
          "round give the model of all rows in one place. Scale features (data.mean, data.std): the "
          "encoder does not centre them, and λ is beside their squares. A client sends the square of "
          "the features, and for a hidden layer of m outputs behind n with an activation n·(m + 1)² "
          "numbers; what it sends says much about rows where it has few. R and b are of model.seed "
          "(or model.init): another seed is another decoder.",
      .notes = DaefNotes,
      .passes =
          [](const Setup& setup) {
            const absl::StatusOr<LinearChain> chain = AutoencoderOf(setup);
            const size_t phases = chain.ok() ? chain->layers.size() : 1;
            return Passes(0, kForward * static_cast<double>(phases));
          },
      .check = [](const Setup& setup) { return AutoencoderOf(setup).status(); },
      .schema = DaefSchema,
      .server = [](const Setup& setup,
                   FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
        MACAW_ASSIGN_OR_RETURN(LinearChain chain, AutoencoderOf(setup));
        return std::make_unique<DaefServer>(setup, std::move(chain), std::move(model));
      },
      .client = DaefClient,
  });
}

}  // namespace macaw::algorithms
