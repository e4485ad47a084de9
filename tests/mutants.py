#!/usr/bin/env python3
"""Proves that the tests notice the mistakes that published federated-learning code is known for.

A mutant is one such mistake, written into a copy of the tree. The test binary named with it is built
there, and one of its tests has to fail. A mutant that survives, does not compile or no longer finds
its place in the source is an error. Needs what ./dev build needs, less LibTorch.

  python3 tests/mutants.py                   all of them, in a temporary folder
  python3 tests/mutants.py --scratch DIR     in a folder that stays: the next run builds little
  python3 tests/mutants.py --only feddyn     those whose trap, file or test matches
  python3 tests/mutants.py --places          builds nothing: whether each finds its place (a unit test)
"""
import argparse, os, pathlib, re, shutil, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATIENCE = 300  # seconds; a test that hangs has noticed

# (source, test binary less its _test, gtest filter): (trap, text, what becomes of it; @ is the text itself).
MUTANTS = {
    ("algorithms/scaffold.cc", "algorithms", "Scaffold.*"): [
        ("SCAFFOLD steps along c_i - c",
         "{{.point = c}, {.point = c_i, .factor = -1}}", "{{.point = c_i}, {.point = c, .factor = -1}}"),
        ("SCAFFOLD II adds c to the new c_i",
         "Subtract(c_i, c, control);", "Copy(c_i, control), Add(c, control);"),
        ("SCAFFOLD's c is overwritten by the newest changes",
         "Add(change.value.view(), control_);", "Copy(change.value.view(), control_);"),
        ("SCAFFOLD's weighted c is overwritten",
         "Axpy(change.weight / total_weight_, change.value.view(), control_);",
         "Copy(change.value.view(), control_);"),
        ("SCAFFOLD's c_i is never stored", ".state = {{\"control\", control}}};", ".state = {}};"),
        ("SCAFFOLD has controls of batch-norm statistics", "ZeroBuffers(control);", "")],
    ("algorithms/scaffold.cc", "algorithms", "Refusals.*"): [
        ("SCAFFOLD II accepts a clip of g - c_i + c",
         "MACAW_RETURN_IF_ERROR(NeedsGradientClip(setup));", "{}")],
    ("training/local_optimizer.cc", "algorithms", "Scaffold.*"): [
        ("the clip is of g - c_i + c whatever was asked for",
         'clips_corrected_ = local.clip == "corrected" &&', "clips_corrected_ =")],
    ("algorithms/feddyn.cc", "algorithms", "FedDyn.*"): [
        ("FedDyn's penalty has no gradient: it is FedAvg",
         "stage.correction = {.mu = Alpha(context),\n                        .v = {{.point = context.State(\"gradient\"), .factor = -1}}};", ""),
        ("FedDyn has no linear term", ",\n                        .v = {{.point = context.State(\"gradient\"), .factor = -1}}", ""),
        ("FedDyn has no quadratic term", "{.mu = Alpha(context),\n                        .v", "{.v"),
        ("FedDyn divides h by |S|", "ChannelOf(aggregate, \"delta\").weight / clients_;", "clients_ / clients_;"),
        ("FedDyn's g_k is never stored", ".state = {{\"gradient\", gradient}}};", ".state = {}};"),
        ("FedDyn corrects batch-norm statistics by h", "ZeroBuffers(h_);", "")],
    ("algorithms/mime.cc", "algorithms", "Mime*"): [
        ("MimeLite's statistic is of gradients at the trained model",
         "if (kLite && base_.tracks()) plan.stages.push_back(gradient);",
         "if (kLite) gradient.start = training::StageEnd{0};\n    @")],
    ("training/stage_inputs.cc", "algorithms", "Scaffold.*:FedDyn.*"): [
        ("a sum of points forgets their signs", "const T factor = static_cast<T>(terms[i].factor);",
         "const T factor = 1;")],
    ("algorithms/robust/geometric_median.cc", "algorithms", "GeometricMedian.*:Robust.*"): [
        ("the geometric median weighs all updates alike",
         "weights[k] = arrived.WeightOf(k) / std::max(smoothing_, std::sqrt(squared));",
         "weights[k] = arrived.WeightOf(k) + 0 * squared;")],
    ("algorithms/robust/geometric_median.cc", "algorithms", "WeightedGeometricMedian.*"): [
        ("RFA forgets the clients' weights",
         "weights[k] = arrived.WeightOf(k) / std::max(", "weights[k] = 1 / std::max(")],
    ("algorithms/robust/bucketing.cc", "algorithms", "Bucketing.*"): [
        ("buckets are neighbours, the same in each round", "random.Shuffle(std::span(order));",
         "static_cast<void>(random);"),
        ("the rest is divided by the size of a whole bucket",
         "arrived.WeightOf(k) / total,", "arrived.WeightOf(k) / static_cast<double>(size),"),
        ("buckets weigh alike", "buckets.weights.push_back(total);", "buckets.weights.push_back(1);"),
        ("the smaller bucket is not counted", "clients / size + (clients % size > 0 ? 1 : 0)", "clients / size")],
    ("algorithms/robust/fltrust.cc", "algorithms", "FlTrust.*"): [
        ("FLTrust does not scale updates to the root's norm",
         "scores[k] / total * (length / norms[k])", "scores[k] / total"),
        ("FLTrust counts updates against the root's", "std::max(0.0, ", "std::abs("),
        ("FLTrust's root is one of those that it trusts", "updates[k].first == root_ || ", ""),
        ("FLTrust believes others' statistics", "CopyBuffers(root->second.view(), mean.view());", ""),
        ("FLTrust divides by how many it trusts", "total += scores[k];", "total += scores[k] > 0 ? 1 : 0;")],
    ("algorithms/robust/norm_bound.cc", "algorithms", "NormBound.*"): [
        ("a norm bound lengthens short updates", "norm > bound_ ? bound_ / norm : 1", "bound_ / norm"),
        ("a norm bound forgets the weights", "arrived.WeightOf(k) / total * kept",
         "(1 + 0 * total) / static_cast<double>(arrived.size()) * kept")],
    ("algorithms/robust/norm_bound.cc", "algorithms", "Robust.*"): [
        ("a norm bound takes the mean of statistics", "TakeMedianBuffers(arrived.updates, mean.view());", "")],
    ("algorithms/around/attack_rows.cc", "algorithms", "MinM*:MinS*"): [
        ("the bisection for gamma goes to the wrong side", "? low : high) = middle", "? high : low) = middle"),
        ("min-max looks at the distance to one honest client", "largest = std::max(largest, Of(i, gamma));",
         "largest = Of(i, gamma);"),
        ("min-sum's bound is a mean of distances", "return attack.kind == \"min-max\" ? largest :",
         "return attack.kind != \"\" ? largest :"),
        ("min-max goes along the deviation", "p[i] = -std::sqrt(variance);", "p[i] = std::sqrt(variance);"),
        ("the unit perturbation has no unit length", "value /= std::sqrt(squared);", "value /= 1;")],
    ("algorithms/around/attack_rows.cc", "algorithms", "Mimic.*:AttacksOnRows.*"): [
        ("mimic copies another client than the first", "honest[0]->Clone()", "honest.back()->Clone()"),
        ("distances see batch-norm statistics", "if (parameter) squared += d * d;",
         "if (parameter || true) squared += d * d;")],
    ("algorithms/around/attack_client.cc", "algorithms", "ReportedWeights.*"): [
        ("a free-rider says that it has no rows",
         "if (channel.name == kWeightChannel) vector.As<double>()[0] = context.weight;", "")],
    ("data/trigger.cc", "data", "Trigger.*:StampedRows.*"): [
        ("a backdoor succeeds with the rows of its own class",
         "!= static_cast<int32_t>(attack.target)", ">= 0"),
        ("a backdoor's rows keep their class",
         "copy->classes.back() = static_cast<int32_t>(attack.target);", ""),
        ("the trigger is in one channel", "c < shape[0]", "c < std::min<int64_t>(shape[0], 1)"),
        ("all rows of a hostile client have the trigger", "stream.Uniform() < attack.poisoned",
         "stream.Uniform() < 1 + 0 * attack.poisoned")],
    ("algorithms/robust/centered_clipping.cc", "algorithms", "CenteredClipping.*:Robust.*"): [
        ("centered clipping forgets its centre", "Add(change.view(), center_);",
         "Copy(change.view(), center_);"),
        ("centered clipping believes one client's statistics",
         "TakeMedianBuffers(updates, combined.view());", "")],
    ("algorithms/robust/robust.cc", "algorithms", "Krum.*"): [
        ("Krum's distances see batch-norm statistics",
         "if (entry.group != Group::kParameter) continue;\n      const std::span<const T> left",
         "const std::span<const T> left")],
    ("algorithms/mean_delta.cc", "algorithms", "FedOpt.*:FedAvg.*"): [
        ("a server optimizer takes statistics for parameters",
         "CopyBuffers(before->view(), model_);\n    AddBuffers(mean_delta.view(), model_);", ""),
        ("statistics are multiplied by a Poisson cohort's weight",
         "ScaleParameters(channel.weight", "Scale(channel.weight"),
        ("statistics are clipped with an update", "ScaleParameters(update_clip_", "Scale(update_clip_")],
    ("algorithms/around/compressed_client.cc", "algorithms", "Compressed*"): [
        ("a residual holds what was sent, too", "Subtract(p, sent, next);", "Copy(p, next);"),
        ("old changes of statistics are sent again", "ZeroBuffers(next);", ""),
        ("a residual decays though its round is never kept",
         "if (compression_.residual_decay < 1) KeepRound(context, channel.name, result, workspace);", ""),
        ("a codec does not tell the rule what it sends",
         "const absl::Status status = inner().Sent(context, result, workspace);",
         "static_cast<void>(context), static_cast<void>(workspace);\n    const absl::Status status;")],
    ("plan/asynchronous.cc", "algorithms", "Discount.*:Buffered.*:Mixed.*"): [
        ("the discount of a copy, and not of the paper", "return 1 / std::sqrt(age);",
         "return 1 / (1 + std::sqrt(age - 1));")],
    ("algorithms/around/asynchronous.cc", "algorithms", "Buffered.*:Mixed.*"): [
        ("updates of older models count like others", "displacement->factor *= discount;", ""),
        ("a mixed model lacks the base of the client", "Add(context.base, delta);", "")],
    ("server/engine/drawn_round.cc", "system", "Buffered.*:VirtualTime.*"): [
        ("staleness is taken after the step",
         "const uint32_t staleness = round.value - 1 - one.base.value;",
         "const uint32_t staleness = round.value - one.base.value;")],
    ("server/engine/timed_round.cc", "server_engine", "TimedRoundOf.*"): [
        ("all that are asked count", "if (run.cohort.over_selection > 1) rules.keep = run.cohort.size;", ""),
        ("no time passes while nobody is there",
         "beginning.model = moment.seconds = there;", "static_cast<void>(there);"),
        ("the last batch of a pass is taken for a full one", "static_cast<double>(RowsPassed(turn));",
         "static_cast<double>(turn.steps() * turn.batches().batch);")],
    ("server/engine/arrivals.cc", "server_engine", "Arrivals.*"): [
        ("a client begins from the model of the next step", ".base = newest_,\n                                        .number",
         ".base = Round(newest_.value + 1),\n                                        .number"),
        ("a client that waits in the buffer begins again",
         "busy_.insert(std::ranges::lower_bound(busy_, entry.client), entry.client);", "")],
    ("scheduler/oort.cc", "scheduler", "Oort.*"): [
        ("Oort rewards clients that are faster than preferred",
         "return seconds > preferred ? std::pow(preferred / seconds, config_.penalty) : 1;",
         "return seconds > 0 && preferred < 1e300 ? std::pow(preferred / seconds, config_.penalty) : 1;"),
        ("Oort's utility is the mean loss", "return clients_.RowsOf(ClientId(client.client)) * client.loss;",
         "return client.loss;"),
        ("Oort forgets who was not asked for long",
         "const double score = utility + std::sqrt(uncertainty / client->asked);",
         "const double score = utility + 0 * uncertainty;"),
        ("Oort's utilities are not clipped", "std::min(UtilityOf(*client), clip)", "UtilityOf(*client)")],
    ("scheduler/feedback.cc", "scheduler", "Feedback.*"): [
        ("Oort's exploration never decays",
         "exploration_ = std::max(exploration_ * oort_.exploration_decay, oort_.exploration_min);", ""),
        ("UCB's losses do not age", "client.loss *= discount_;", "")],
    ("scheduler/by_loss.cc", "scheduler", "UpperBound.*:PowerOfChoice.*"): [
        ("UCB forgets the client's share of the rows", "const double share = clients_.RowsOf(ClientId(client.client)) / rows_;",
         "const double share = 1;"),
        ("power of choice takes clients without a loss last", "known == nullptr ? KnownClient::kNoLoss",
         "known == nullptr ? -KnownClient::kNoLoss")],
    ("server/engine/draw.cc", "server_engine", "Draw.*"): [
        ("whoever is present is unknown",
         "PoolOf(*run_, *roster_, presence_, feedback_.get(), std::move(rows))",
         "(feedback_ = std::make_unique<scheduler::Feedback>(run_->cohort), PoolOf(*run_, *roster_, presence_, feedback_.get(), std::move(rows)))")],
    ("virtual_time/closing.cc", "virtual_time", "CloseRound.*"): [
        ("a turn that ends at the deadline is late", "std::ranges::upper_bound(", "std::ranges::lower_bound("),
        ("a round ends before its deadline though it waits for somebody",
         "if (closing.late > 0) closing.seconds = std::max(closing.seconds, rules.deadline);", ""),
        ("of equal turns the first client counts", "OrderTies(seconds, count, tie, order);",
         "static_cast<void>(tie);")],
    ("algorithms/around/compressed_client.cc", "algorithms", "Rotated.*"): [
        ("each client draws a rotation of its own",
         "codecs::Rotate(sent, context.CommonRandom(", "codecs::Rotate(sent, context.Random("),
        ("a residual is kept in the rotated numbers of a round", "if (!compression_.rotated) return sent;",
         "return sent;")],
    ("algorithms/around/rotated_server.cc", "algorithms", "Rotated.*"): [
        ("what was rotated is not rotated back",
         "if (!channel.value.empty()) codecs::RotateBack(channel.value.view(), rotation);", ""),
        ("a robust rule sees rotated vectors",
         "for (auto& [client, vector] : channel.collected) codecs::RotateBack(vector.view(), rotation);", "")],
    ("codecs/rotation.cc", "codecs", "Rotation.*"): [
        ("a rotation is not divided by the root of its size",
         "static_cast<T>(1 / std::sqrt(static_cast<double>(block.size())))", "T{1}"),
        ("a rotation has no random signs", "std::bit_cast<Word>(values[w]) ^ sign", "std::bit_cast<Word>(values[w]) ^ 0 * sign"),
        ("the rest of a tensor is not rotated",
         "if (blocks.rest > 0) of_last.emplace(random, blocks.size);", "")],
    ("codecs/tensors.h", "codecs", "Rotation.*"): [
        ("statistics are rotated", "if (entry.group == Group::kParameter) f(", "f(")],
    ("algorithms/around/compressed_server.cc", "algorithms", "Compressed*"): [
        ("EF21 adds a cohort's mean as if all had come", "weight / WholeOf(spec, weight)", "1"),
        ("EF21 is resumed without its sum",
         "Copy(state.vectors.at(NameOfSum(c)).view(), sums_[c].view());", "{}")],
    ("algorithms/around/compressed.cc", "algorithms", "Compressed*"): [
        ("random-k is scaled though its error is fed back", "use.scaled = false", "use.scaled = true")],
    ("algorithms/around/coded_broadcast_server.cc", "algorithms", "CodedBroadcast.*"): [
        ("a change may be larger than what it is of",
         "ScaleParameters(Shorter(x), change_.view());", ""),
        ("a resumed server has sent nothing", "was_sent_ = was_sent->second != 0;", ""),
        ("a second request moves the model that clients have",
         "if (made_ != context.round || x != made_of_) Make", "Make"),
        ("a stop inside a round keeps what the round has sent",
         "again ? before_.Clone() : sent_.Clone()", "sent_.Clone()"),
        ("statistics change by a difference", "CopyBuffers(x, change_.view());", "")],
    ("models/adapters.cc", "models_spec", "*Adapters.*"): [
        ("PiSSA forgets that the product is scaled", "found.values[k] / adapted.adapter.scale", "found.values[k]"),
        ("PiSSA leaves the weight whole", "AddProduct<T>(-adapted.adapter.scale, a, b, rank, weight);", ""),
        ("a merge forgets the scale", "AddProduct<T>(adapted.adapter.scale, ", "AddProduct<T>(1, ")],
    ("models/init.cc", "models_spec", "Adapters.*"): [
        ("adapters shift the draws of other tensors", "plan.adapter ? adapter++ : plain++",
         "plan.adapter ? plain++ + 0 * adapter : plain++")],
    ("plan/model.cc", "models_spec", "Adapters.*"): [
        ("a base is trained beside its adapters", "globs = {\"*\"};", "globs;")],
    ("training/fused/adapted_linear.cc", "training_fused", "*FusedAdapted.*"): [
        ("the gradient of A lacks the scale", "    Scale(pass.n, d_inner);\n", ""),
        ("the input's gradient lacks the adapter's part", "pass.d_in[i] += down.d_in[i];", "pass.d_in[i] += 0;"),
        ("the weight's gradient is computed though nobody wants it", "wants = wants || pass.Wants(i);",
         "wants = wants || pass.Wants(i) || true;")],
    ("training/device/program_builder.cc", "training_device", "*Adapters*"): [
        ("an adapter on a device is not scaled",
         "AddSum(low_rank, relu, static_cast<float>(adapter.scale));", "AddSum(low_rank, relu);")],
    ("algorithms/around/residual_age.cc", "algorithms", "Compressed.*"): [
        ("a residual decays at each turn, whether its client was away or not",
         "since > 0 ? since - 1 : 0", "since"),
        ("a residual decays once, however long its client was away",
         "since > 0 ? since - 1 : 0", "since > 1 ? 1 : 0"),
        ("a residual decays between the phases of a round", "since > 0 ? since - 1 : 0", "since - 1")],
    ("training/api/round_local.cc", "training_api", "RoundLocal.*:QuadraticSteps.*"): [
        ("QSR's rate lacks the schedule", "QuadraticSteps(local, work.lr, round)",
         "QuadraticSteps(local, local.lr, round)"),
        ("QSR has its longest rounds in warm-up",
         "round.value <= local.lr_schedule.warmup_rounds", "false"),
        ("QSR is linear", "ratio * ratio", "ratio"),
        ("QSR goes below its base", "return std::max(local.steps, static_cast<uint32_t>(steps));",
         "return static_cast<uint32_t>(steps);"),
        ("QSR's steps overflow", "if (!(steps < kMostQuadraticSteps)) return std::max(local.steps, kMostQuadraticSteps);", ""),
        ("QSR divides by a rate of zero", "|| rate <= 0 ", "")],
    ("server/engine/draw.cc", "server_engine", "Seats.*"): [
        ("the server plans with the steps of the run, and not of the round",
         "training::RoundLocal(*run_, round)", "run_->local")],
    ("algorithms/around/factored_client.cc", "algorithms", "Factored.*"): [
        ("a residual of factors holds what was sent, too",
         "Subtract(matrices, sent, kept);", "Copy(matrices, kept);"),
        ("a residual of factors does not decay",
         "PartThatStays(factoring_.residual_decay, context, channel.spec.name)", "1"),
        ("factors do not tell the rule what is decoded of them",
         "MACAW_RETURN_IF_ERROR(inner().Sent(context, result, workspace));", "")],
    ("algorithms/around/factored_server.cc", "algorithms", "Factored.*:PowerSgd.*"): [
        ("P and Q start from another seed than the run's", "{.seed = factoring_.seed}", "{.seed = 1}"),
        ("P and Q are resumed at their start",
         "Copy(state.vectors.at(name).view(), bases_[c].Of(which).view());", "{}")],
    ("algorithms/around/factored_client.cc", "algorithms", "ChosenRanks.*"): [
        ("ranks are chosen by the errors of one client",
         "if (factoring_.Chooses(context.round)) {",
         "if (factoring_.Chooses(context.round) && context.client == ClientId(0)) {")],
    ("algorithms/around/factored_server.cc", "algorithms", "ChosenRanks.*"): [
        ("a new rank is of one of the two bases",
         "for (const Factor which : {Factor::kP, Factor::kQ}) {\n      channel.form.Orthonormalise(which, ranks,",
         "for (const Factor which : {Factor::kP}) {\n      channel.form.Orthonormalise(which, ranks,")],
    ("codecs/rank_choice.cc", "codecs", "RankChoice.*"): [
        ("no single matrix may leave out all of the limit",
         "cells <= kErrorCells ?", "cells < kErrorCells ?"),
        ("errors are rounded down to cells", "std::ceil(error * kErrorCells / limit)",
         "std::floor(error * kErrorCells / limit)"),
        ("the limit lacks the errors of all matrices but one",
         "limit += std::fmax", "limit = std::fmax")],
    ("core/blocks_reader.cc", "core", "Blocks.*"): [
        ("a number of a block may come twice", "places[i] <= places[i - 1] ? 1 : 0", "0"),
        ("places lie beyond a block's end",
         "if (count - at < kWord) word &= (uint64_t{1} << (count - at)) - 1;", "")],
    ("core/blocks.cc", "core", "Blocks.*"): [
        ("blocks of zeros at the end of a piece are lost", "zeros_ += next.zeros_;", "")],
    ("aggregation/exact_sum_unfold.cc", "aggregation", "ExactSumCompact.*"): [
        ("a value may be larger than the part says", "span.low = -span.high;", "span = {};")],
    ("aggregation/exact_sum_unfold.cc", "aggregation", "LargeSums.*"): [
        ("a large sum that came over the network is not added",
         "merge(block.data(), own.data() + at, block.size());", ""),
        ("a large sum keeps the bytes that it came in", "lender = nullptr;", "")],
    ("aggregation/exact_sum_compact.cc", "aggregation", "LargeSums*"): [
        ("a sum in a file gives up what is still to be read",
         "GiveUpSpace(bytes_.subspan(gone_, until - gone_));", "GiveUpSpace(bytes_);")],
    ("core/file_blocks.cc", "core", "FileBlocks.*"): [
        ("a block in a file is used again with its holes", "block.gave_up = true;", ""),
        ("a page goes of which a part is still to be read",
         "(first + piece.size()) / page * page;", "RoundUpToPage(first + piece.size());")],
    ("algorithms/around/channels.cc", "algorithms", "EndsInFiles.*"): [
        ("an end that two channels send is gone after the first one",
         "IsInOneValue(described->end, values) &&", ""),
        ("the vector of a trainer of ours loses its space",
         "TakesSpaceFirst(described->end.view().bytes.data())", "true")],
    ("server/served_blobs.h", "server", "ServedBlobs.*"): [
        ("a large model is forgotten that an evaluation needs",
         "lent_.insert_or_assign(piece.digest, Lent::Of(piece));", ""),
        ("an open evaluation's whole model is gone for a worker of release 0.1.0",
         "if (!blob.has_parts()) return {.bytes = blob.bytes};", "return {.bytes = blob.bytes};"),
        ("a whole model is made for each caller that asks for it",
         "made_.insert_or_assign(whole.digest, bytes);", "")],
    ("proto/wire/open_downloads.h", "wire", "OpenDownloadsTest.*"): [
        ("a node has any number of downloads", "of_name >= limits_.of_name", "of_name >= 100"),
        ("a download that nobody reads stays", "now - open.moved > limits_.stall", "now < open.moved")],
    ("proto/wire/download_turns.cc", "wire", "DownloadTurnsTest.*"): [
        ("a slow node keeps its turn", "now - *node.began <= limits_.turn", "true"),
        ("a node that has gone keeps its turn", "now - node.seen > gone", "false"),
        ("a node that has gone gets a turn", "!node.open.empty() && ", ""),
        ("whoever has the last byte keeps its turn", "if (complete && of->open.empty())",
         "if (false)"),
        ("who has a blob stands behind all others", "nodes_.splice(nodes_.begin(), nodes_, of)",
         "nodes_.splice(nodes_.end(), nodes_, of)"),
        ("a slow node has one turn after the other", "(over && of->second)", "false"),
        ("each blob has a turn of its own", "now - node.used", "now"),
        ("a wait counts for each download", "std::exchange(of->waits, now)", "of->waits")],
    ("worker/downloads.cc", "worker", "AnnouncedSizes.*"): [
        ("a device makes room for whatever a server announces", "if (blob.size == bytes) ", ""),
        ("a device reads a short form that is longer", " && form.size < blob.size", "")],
    ("codecs/columns.cc", "codecs", "LowRank.*"): [
        ("a column of zeros is divided by its norm",
         "while (!(norm > kDependent * before) || !(norm > 0)) {", "while (false) {")],
    ("codecs/sign.cc", "codecs", "Sign.*"): [
        ("the sign of zero is one", "value > 0 ? 1 : value < 0 ? -1 : 0", "value < 0 ? -1 : 1"),
        ("signs are sent without their scale",
         "static_cast<float>(norm / static_cast<double>(count))", "float{1}"),
        ("blocks of a rotation that differ in size share an unbiased scale",
         "ForEachPiece(values, kPiece, [](", "ForEachPiece(values, values.size(), [](")],
    ("codecs/majority.cc", "codecs", "Majority.*"): [
        ("a tie is a vote for +1, and so is a number that did not change",
         "value > 0 ? 1 : value < 0 ? -1 : 0", "value < 0 ? -1 : 1"),
        ("a client that diverged votes", "std::isfinite(value) ? SignOf(value) : value", "SignOf(value)")],
    ("algorithms/around/majority.cc", "algorithms", "Majority*"): [
        ("a vote is divided by a Poisson cohort's planned weight",
         "rule.server(WithoutPlannedWeight(setup), std::move(model))", "rule.server(setup, std::move(model))"),
        ("a hostile client votes as often as it likes", "channel.bound = 1;", "{}")],
    ("algorithms/around/majority_server.cc", "algorithms", "Majority.*"): [
        ("the server takes the mean of the signs", "codecs::Decide(step_, mean.view());", "{}")],
    ("codecs/randomk.cc", "codecs", "RandomK.*"): [
        ("random-k does not scale", "values[i] *= factor;", "")],
    ("codecs/tensors.h", "codecs", "*EveryCodec*"): [
        ("codecs round statistics", "if (entry.group == Group::kParameter) f(", "f(")],
    ("algorithms/around/channels.cc", "algorithms", "FedNova.*"): [
        ("FedNova divides statistics by its steps", "ScaleParameters(described->factor", "Scale(described->factor")],
    ("algorithms/qfedavg.cc", "algorithms", "QFedAvg.*"): [
        ("q-FedAvg multiplies statistics by the loss", "ScaleParameters(std::pow", "Scale(std::pow")],
    ("algorithms/fedexp.cc", "algorithms", "FedExP.*"): [
        ("FedExP's rate lacks the 2", "const double below = 2 * (", "const double below = ("),
        ("FedExP shrinks updates that agree", "std::max(1.0, mean_square / below)", "mean_square / below"),
        ("FedExP's epsilon is beside the quotient",
         "2 * (SquaredNorm(delta.view()) + epsilon_)", "2 * SquaredNorm(delta.view()) + epsilon_"),
        ("FedExP reports the last iterate", "return (before + x) / 2;", "return x + 0 * before;"),
        ("FedExP's mean is half of the last mean", "if (mean_) Copy(Model(), *mean_);", ""),
        ("FedExP's quotient mixes a plain and a weighted mean",
         ".reduction = schema.up[0].reduction,", ".reduction = aggregation::Reduction::kMean,")],
    ("algorithms/term.cc", "algorithms", "Term.*"): [
        ("TERM's powers overflow", "std::exp(tilt - context.Down(kLargest).As<double>()[0])", "std::exp(tilt)"),
        ("TERM does not divide by its weights", "server_lr / mean_power_, mean_delta", "server_lr, mean_delta"),
        ("TERM multiplies statistics by the loss", "ScaleParameters(power, delta);", "Scale(power, delta);"),
        ("TERM's quotient mixes a plain and a weighted mean",
         ".reduction = schema.up[0].reduction,", ".reduction = aggregation::Reduction::kMean,")],
    ("algorithms/heterofl.cc", "algorithms", "HeteroFl*"): [
        ("HeteroFL divides by all weights", "DivideBy(shares[have_both], run);", "DivideBy(shares.back(), run);"),
        ("HeteroFL averages classes over clients without them",
         "return by_class ? of_class[row] : shares;", "return by_class && row > 9 ? of_class[row] : shares;"),
        ("HeteroFL's clients send what decay did to classes that they lack",
         "if (!classes[c]) CopyClass(c, context.model(), end);", "if (false) CopyClass(c, context.model(), end);"),
        ("HeteroFL moves what nobody trains", ": T{0};", ": T{1};"),
        ("HeteroFL believes a client that had next to nothing", "Clamp(bound_, delta.view());", ""),
        ("HeteroFL trains without the scaler", ".scaled = plan_.scaled", ".scaled = false"),
        ("HeteroFL tests a slice without the scaler", ".scaled = plan.scaled", ".scaled = false")],
    ("algorithms/levels.cc", "algorithms", "HeteroFl*"): [
        ("HeteroFL counts clients by whole shares", "clients * shares / sum", "clients / sum * shares"),
        ("HeteroFL gives a client beyond the list a rate",
         "if (client.value < clients) return absl::OkStatus();", "return absl::OkStatus();")],
    ("algorithms/ridge.cc", "algorithms", "Ridge.*"): [
        ("ridge counts a client in each round", "if (HasCome(context)) return training::LocalPlan();", "{}"),
        ("ridge forgets earlier rounds", "Add(sums.view(), sums_);", "Copy(sums.view(), sums_);"),
        ("ridge never asks the clients of a bad round again", "rounds.back() = context.round.value;", ""),
        ("ridge asks all clients again after a bad round",
         "return round > 0 && !std::ranges::count(context.Down(kThrownAway).As<double>(), round);",
         "return round > 0 && context.Down(kThrownAway).As<double>().back() == 0;"),
        ("ridge shrinks the bias, too", "for (size_t i = 0; i < layer_.inputs; ++i) gram", "for (size_t i = 0; i < terms; ++i) gram")],
    ("algorithms/symmetric.cc", "algorithms", "Ridge.*"): [
        ("ridge divides by what is zero",
         "free[i] = a[i * n + i] > least[i];", "free[i] = a[i * n + i] >= -least[i];"),
        ("ridge compares features of different units", "least[i] = a[i * n + i] *", "least[i] = a[0] *")],
    ("algorithms/statistics.cc", "algorithms", "Ridge.*"): [
        ("sums of clients are averaged", "aggregation::Reduction::kFixedSum", "aggregation::Reduction::kMean")],
    ("algorithms/kmeans.cc", "algorithms", "KMeans.*"): [
        ("an empty centre moves", "        ++empty;\n        continue;", "        ++empty;"),
        ("a centre is moved by less than a row", "if (count < 1) {", "if (count == 0) {"),
        ("a centre is the mean over all rows", "sum[i] / count", "sum[i] / (count + 1)"),
        ("biases are not those of the centres", "static_cast<T>(-square / 2)", "static_cast<T>(-square)"),
        ("k-means' first centres have a mean square for a variance", " / rows - mean[i] * mean[i];", " / rows;")],
    ("training/objective.cc", "training_api", "ObjectiveOfReconstruction.*"): [
        ("the loss of a reconstruction is a sum over features", "sums[kLoss] += squares / features;", "sums[kLoss] += squares;"),
        ("a reconstruction's gradient is that of the sum", "2.0 / (features * mean.divisor)", "2.0 / mean.divisor")],
    ("algorithms/daef.cc", "algorithms", "Daef.*"): [
        ("DAEF's random layers are those that it has solved for", "Copy(initial_, draft_.view());",
         "Copy(model_, draft_.view());"),
        ("DAEF moves its model before the last phase", "return Broadcast{{\"model\", draft_.view()}};",
         "Copy(draft_.view(), model_);\n    return Broadcast{{\"model\", draft_.view()}};"),
        ("DAEF's eigenvectors have any sign", "< 0 ? -1 : 1;", "< 0 ? 1 : 1;"),
        ("DAEF does not transpose", "model[layer.weight + j * layer.inputs + k] = value;",
         "model[layer.weight + (j * layer.inputs + k) / layer.outputs + (j * layer.inputs + k) % layer.outputs * layer.inputs] = value;"),
        ("DAEF leaves the bias out of the penalty", "for (size_t i = 0; i < terms; ++i) gram[i * terms + i] += lambda;",
         "for (size_t i = 0; i + 1 < terms; ++i) gram[i * terms + i] += lambda;"),
        ("DAEF solves all layers with one penalty", "it.last ? lambda_last_ : lambda_hidden_", "lambda_hidden_"),
        ("DAEF's error lacks half of the Gram matrix", "row += 2 * gram", "row += gram")],
    ("algorithms/daef_sums.cc", "algorithms", "Daef.*"): [
        ("DAEF weighs by the slope and not by its square", "row.weight[k] = slope * slope;", "row.weight[k] = slope;"),
        ("DAEF's targets are behind the activation", "row.target = row.z;", "row.target = row.h;"),
        ("DAEF sums no rows behind the encoder", "DecoderEntry::kRows)[0] += static_cast<double>(rows.count())",
         "DecoderEntry::kRows)[0] += 1")],
    ("algorithms/linear_chain.cc", "algorithms", "Daef.*"): [
        ("DAEF takes the slope of tanh for that of sigmoid", "return h * (1 - h);", "return 1 - h * h;")],
    ("models/slice.cc", "models_spec", "Slice.*"): [
        ("a slice behind a flatten has other channels",
         "use(from.offset + r * wide, to.offset + r * narrow, narrow);",
         "for (uint64_t k = 0; k < narrow; ++k) use(from.offset + r * wide + k * wide / narrow, to.offset + r * narrow + k, 1);"),
        ("a slice cuts the outputs", "i == output", "i == output + 1"),
        ("a slice is rounded down", "std::ceil(channels)", "std::floor(channels)"),
        ("the scaler is behind the output, too", "&& i != output;", ";")],
    ("training/fused/scale.cc", "training_backends", "SlicedTrainer.*"): [
        ("the scaler has no gradient", "factor_ * pass.d_out[i]", "pass.d_out[i]")],
    ("training/stage_inputs.cc", "training_backends", "MaskedClasses.*"): [
        ("no class is masked", "return objective.Among(std::move(classes));", "return objective;")],
    ("training/fused/fused_evaluation.cc", "training_backends", "MaskedClasses.*"): [
        ("a masked class has a gradient", "objective.ClearAbsent<float>(logit_gradient_);", "")],
    ("algorithms/afl.cc", "algorithms", "Afl.*"): [
        ("AFL does not project", "ProjectOntoSimplex(lambda);", "ProjectOntoSimplex({});"),
        ("AFL normalises instead of projecting", "ProjectOntoSimplex(lambda);",
         "ProjectOntoSimplex({});\n    double sum = 0;\n    for (const double v : lambda) sum += v;\n    for (double& v : lambda) v /= sum;"),
        ("AFL takes a drawn cohort's losses for all", "rate_ * factor *", "rate_ * (factor > 0) *"),
        ("AFL's clients forget their weight", "ScaleParameters(clients_ * lambda[context.client.value], delta);", ""),
        ("AFL weighs clients by their rows", "schema.up[0].reduction = aggregation::Reduction::kMean;", ""),
        ("AFL reports the last iterate", "Map(*mean_, blend, Model());",
         "static_cast<void>(blend), Copy(Model(), *mean_);")],
    ("algorithms/fedsam.cc", "algorithms", "FedSam.*"): [
        ("FedSAM goes uphill without the norm", "Axpy(rho_ / norm,", "Axpy(rho_,"),
        ("FedSAM divides by a gradient of zero", "if (norm == 0) return;", ""),
        ("FedSAM's gradient is that of y: it is FedAvg", "batch.GradientAt(sharp)", "batch.GradientAt(y)"),
        ("FedSAM looks downhill", "Axpy(rho_ / norm, g, sharp);", "Axpy(-rho_ / norm, g, sharp);")],
    ("algorithms/moon.cc", "algorithms", "Moon.*"): [
        ("MOON is pushed away from the common model",
         "{context.model(), context.State(\"previous\")}", "{context.State(\"previous\"), context.model()}"),
        ("MOON's gradient lacks the temperature", "const double slope = mu / tau /", "const double slope = mu /"),
        ("MOON's softmax lacks the temperature", "(far.value - near.value) / tau;", "far.value - near.value;"),
        ("MOON's products are not divided by lengths", "const double lengths = norm * NormOf(other);",
         "const double lengths = norm > 0 && NormOf(other) > 0;"),
        ("MOON divides by the length of zeros", "if (lengths == 0) return {};", ""),
        ("MOON's cosine has no slope in its own length", "const double back = far.back - near.back;",
         "const double back = 0 * (far.back - near.back);"),
        ("MOON's previous model is the one that came down", "{{\"previous\", outcomes[0].end}}",
         "{{\"previous\", context.model()}}"),
        ("MOON's first turn is pushed away from a model of zeros", "if (!context.first_turn) stage.references",
         "stage.references")],
    ("algorithms/fedper.cc", "algorithms", "FedPer.*"): [
        ("FedPer keeps the body and shares the head", "LocalGroupClient(setup, HeadOf(setup))",
         "LocalGroupClient(setup, HeadOf(setup).Others())")],
    ("algorithms/local_group.cc", "algorithms", "FedPer.*"): [
        ("FedPer sends its head", "group_.Insert(broadcast_group, shared);", ""),
        ("FedPer's client forgets its head", "stage.start = Personal(context, workspace);", "")],
    ("algorithms/local_group.h", "algorithms", "FedPer.*"): [
        ("FedPer tests the common head", "return training::Point(Personal(context, workspace));",
         "static_cast<void>(workspace);\n    return training::Point(context.model());")],
    ("algorithms/fednova.cc", "algorithms", "FedNova.*"): [
        ("FedNova's momentum is of the step before it is normalised",
         "AddWithin(bound_, tau_eff_, mean_direction, momentum_);",
         "Axpy(1, mean_direction, momentum_);"),
        ("FedNova's momentum takes the server's rate in",
         "AddWithin(bound_, tau_eff_, mean_direction, momentum_);",
         "Axpy(server_lr * tau_eff_, mean_direction, momentum_);"),
        ("FedNova divides by steps, whatever the momentum", "1 / outcome.a_norm1", "1.0 / outcome.steps"),
        ("FedNova's tau_eff always counts steps", "count_steps_ ?", "(count_steps_ || true) ?"),
        ("FedNova's momentum does not decay", "Scale(beta_, momentum_);", "")],
    ("algorithms/pfedme.cc", "algorithms", "PFedMe.*"): [
        ("pFedMe's personal steps are held near x", "Map(theta, step, gradient, w);",
         "Map(theta, step, gradient, theta);"),
        ("pFedMe sends its personal model", "static_cast<T>(lambda_) * (at - near);", "(at - near) / static_cast<T>(0.1);"),
        ("pFedMe keeps the global model's copy", "result.state = {{\"personal\", theta}};",
         "result.state = {{\"personal\", outcomes[0].end}};"),
        ("pFedMe's statistics stay those of x", "batch.GradientAtOwn(theta)",
         "batch.GradientAt(theta)"),
        ("pFedMe's personal model goes on from the last turn", "Copy(context.model(), theta);",
         "Copy(context.first_turn ? context.model() : context.State(\"personal\"), theta);"),
        ("pFedMe takes one personal step a batch", "k < steps_; ++k", "k < steps_ && k < 1; ++k"),
        ("pFedMe's decay pulls w, too", "std::exchange(stage.local.weight_decay, 0.0)", "stage.local.weight_decay"),
        ("pFedMe tests the common model", "context.first_turn ? context.model() : context.State(\"personal\"))",
         "context.model())")],
    ("algorithms/apfl.cc", "algorithms", "Apfl.*"): [
        ("APFL's own step lacks alpha", "Axpy(-own.rate * before,", "Axpy(-own.rate,"),
        ("APFL's own step is of the own model's gradient", "batch.GradientAtOwn(own.mixed)", "batch.GradientAtOwn(own.v)"),
        ("APFL's alpha moves uphill", "before - alpha_lr_ * Dot", "before + alpha_lr_ * Dot"),
        ("APFL's alpha is not kept", "{\"alpha\", alpha}};\n    result.metrics", "};\n    result.metrics"),
        ("APFL tests the own model alone", "context.State(\"personal\"), context.model(),",
         "context.State(\"personal\"), context.State(\"personal\"),"),
        ("APFL's alpha steps at each batch", "std::exchange(own.first, false) && ", ""),
        ("APFL's alpha leaves [0, 1]", "std::clamp(before - alpha_lr_ * Dot(own.mixed, own.gradient), 0.0, 1.0)",
         "before - alpha_lr_ * Dot(own.mixed, own.gradient)"),
        ("APFL's own model begins each turn as the common one",
         "Copy(context.first_turn ? context.model() : context.State(\"personal\"), v);", "Copy(context.model(), v);")],
    ("algorithms/perfedavg.cc", "algorithms", "PerFedAvg.*"): [
        ("Per-FedAvg keeps the adaptation", "Zero(g);  // w stays where it is", "ScaleParameters(1, g);"),
        ("Per-FedAvg takes the gradient before the adaptation",
         "Copy(batch.GradientAt(adapted), g);", "Copy(batch.GradientAt(w), g);"),
        ("Per-FedAvg adapts by another rate than alpha", "Axpy(-alpha_, g, adapted);", "Axpy(-alpha_ / 2, g, adapted);"),
        ("Per-FedAvg takes both gradients on one batch", "Copy(batch.GradientAt(adapted), g);",
         "Axpy(decay, w, g), Copy(w, adapted), Axpy(-alpha_, g, adapted);\n        @")],
    ("algorithms/around/drift.cc", "algorithms", "Drift.*"): [
        ("a norm leaves the last parameters out", "i + lane < x.size(); ++lane", "i + lane + 1 < x.size(); ++lane"),
        ("the cosine is of squares", "norm / norms.As<double>()[1]", "norm / norms.As<double>()[0]"),
        ("agreement is a quotient of norms, not of squares", "square / norms.As<double>()[0]", "norm / norms.As<double>()[0]"),
        ("squares are added without the clients' weights", ".reduction = update.reduction,",
         ".reduction = Reduction::kMean,"),
        ("a drift is a square", "result.metrics.emplace_back(kDriftMean, norm);",
         "result.metrics.emplace_back(kDriftMean, square);")],
    ("algorithms/last_layer.cc", "algorithms", "Refusals.*"): [
        ("the last layer is that of what is trained", "if (count > 0) names.clear();", ""),
        ("a frozen head is the last trained layer", "return std::ranges::none_of(", "return false && std::ranges::none_of(")],
    ("training/api/losses.cc", "training_api", "Losses.*"): [
        ("a model that has diverged is the best", "std::isfinite(loss) ? loss : std::numeric_limits<double>::infinity()",
         "std::isfinite(loss) ? loss : -std::numeric_limits<double>::infinity()"),
        ("a client that diverges as it trains counts", "} else if (!counts) {", "} else if (!counts && !compares) {")],
    ("models/adapters.cc", "models_spec", "Adapters.*"): [
        ("adapters of a file count by another scale", "our.scale == their.scale", "true")],
    ("server/early_stopping.cc", "server", "EarlyStopping.*"): [
        ("the name of a group decides what is better", ": rest.substr(last)", ": rest")],
    ("algorithms/ifca.cc", "algorithms", "Ifca.*"): [
        ("IFCA's clients take the first model, whatever its loss", "training::LeastLoss(outcomes.first(k_))", "0 * outcomes.size()"),
        ("IFCA's models are moved by the updates of all clients",
         "Scale(1 / part, mean);", "static_cast<void>(mean);"),
        ("IFCA believes a client that had next to nothing of a model", "Clamp(bound_, mean);", ""),
        ("IFCA's clients send the update of their model for each model",
         "result.up.push_back({DeltaName(j), nothing});",
         "result.up.push_back({DeltaName(j), Displacement(outcomes.back().end, context.Down(ModelName(best)))});"),
        ("IFCA's clients train the first model, whatever they chose",
         "work.start = context.Down(ModelName(Best(outcomes)));", "work.start = context.model();"),
        ("IFCA's losses are all of the first model", "plan.stages.back().start = context.Down(ModelName(j));",
         "plan.stages.back().start = context.model();"),
        ("IFCA's models begin equal", "if (permuted) random.Shuffle(tensor);", "")],
    ("training/api/calibration.cc", "training_api", "ClassCounts.*"): [
        ("a calibration error is a mean over bins", "return error / rows;", "return error / kCalibrationBins;"),
        ("a bin of confidences holds its lower end", "std::ceil(units / kUnits * kCalibrationBins)",
         "std::floor(units / kUnits * kCalibrationBins) + 1")],
    ("training/api/class_counts.cc", "training_api", "ClassCounts.*"): [
        ("ties are all among the five largest", " || (z[c] == z[label] && c < label)", "")],
    ("training/api/row_metrics.cc", "training_api", "RowMetrics.*"): [
        ("R2 is against the mean square of labels, not their spread", "- mean * sums[kTargets]", "- 0 * mean"),
        ("perplexity is a mean of powers", "std::exp(sums[kLossOf] / sums[kRowsOf])",
         "std::exp(sums[kLossOf]) / sums[kRowsOf]")],
    ("server/client_groups.cc", "server", "*"): [
        ("the worst group is the one with the largest number",
         "metric.higher_is_better ? least : most", "metric.higher_is_better ? most : least"),
        ("the metrics of models are those of groups", "groups.counts = &EvaluationSums::model_counts;", "")],
    ("server/engine/evaluation_board.cc", "server", "EvaluationBoard.*"): [
        ("groups count the global model, too", "if (slot.task.kind != EvaluationKind::kClientTest) return;", "")],
    ("plan/named_groups.cc", "server", "NamedGroups.*"): [
        ("a whole name comes before every pattern", "whole->second.place < entry.place", "true")],
    ("training/local_optimizer.cc", "training_api", "LocalOptimizer.*"): [
        ("local momentum goes on from client to client",
         "std::memset(bytes.data(), 0, bytes.size());", "static_cast<void>(bytes);")],
    ("training/device/program_builder.cc", "training_device", "DeviceAgreement.*"): [
        ("a device reads a sequence of numbers as one vector",
         "} else if (input.size() == 2) {", "} else if (input.empty()) {")],
    ("training/fused/program.cc", "training_device", "DeviceAgreement.*"): [
        ("a fused linear layer reads a sequence of numbers as one vector",
         "AppendLinear(*linear, input.size() == 2 ?", "AppendLinear(*linear, input.empty() ?"),
        ("outputs behind a last flatten lie as the layer before it left them",
         "if (!builder.shape.InOneLine())", "if (false)")],
    ("training/fused/elementwise.cc", "training_device", "DeviceAgreement.*"): [
        ("a fused sigmoid makes weights of a sequence's padding",
         "line < example + shape.size()", "line < example")],
    ("training/fused/fused_trainer.cc", "training_fused", "*FusedTrainer*"): [
        ("the fused trainer's momentum goes on from client to client",
         "std::memset(momentum_.bytes().data(), 0, momentum_.size());", "")],
    ("aggregation/exact_sum_report.cc", "algorithms", "*EveryAlgorithm*"): [
        ("a mean is divided by the weight of all who were asked",
         "Scaled(FromInteger(s.weight), std::ldexp(1.0, -s.plan->weight_bits))",
         "{s.plan->order.total_weight, 0}"),
        ("a mean is divided by the number of all who were asked",
         "static_cast<int64_t>(s.multiplicity)), grid", "int64_t(s.plan->order.total_multiplicity)), grid")],
    ("algorithms/kept_state.cc", "algorithms", "*EveryAlgorithm*"): [
        ("FedOpt is resumed without m and v",
         "Copy(state.vectors.at(name).view(),", 'if (name == "model") @')],
    ("algorithms/kept_state.cc", "algorithms", "FedOpt.*"): [
        ("FedOpt is resumed without its count of steps",
         "number = state.numbers.at(name);", "number += 0;")],
    ("server/split_model.cc", "server", "*SplitModel*:FrozenKeeper.*"): [
        ("a model has the name of the one before",
         "leaves_.empty() || newest_.first != trained.digest", "leaves_.empty()"),
        ("only the first leaf of a trained tensor is hashed again",
         "(piece.at + piece.bytes - 1) / kBlobLeafBytes", "piece.at / kBlobLeafBytes")],
    ("server/checkpoint.cc", "server", "Checkpoint.*"): [
        ("a checkpoint holds the model alone",
         "for (const auto& [name, vector] : checkpoint.state.vectors) {", '@ if (name != "model") continue;')],
    ("server/engine/commits.cc", "server_engine", "OneStatefulRound.*"): [
        ("a state becomes current though its part was turned down",
         "const fleet::CommitReply& why) {",
         "@ for (const auto& r : part.included) states_.versions().Stage(r.attempt);"),
        ("a state becomes current before its round is done",
         "states_.versions().Stage(record.attempt);", "@\n  states_.versions().Close(part.round);")],
    ("server/leave_one_out.cc", "server", "*LeftOutOnce*"): [
        ("the model without a client begins where the one before it ended",
         "MACAW_RETURN_IF_ERROR(twin_->Load(before_));", "{}")],
    ("server/client_parts.cc", "server", "*LeftOutOnce*:*Unlearned*"): [
        ("with a client, others are left out",
         "MACAW_RETURN_IF_ERROR(right.Merge(std::move(outside)));", "(void)outside;"),
        ("the client is still in the sum", "SumOf(begin, middle)", "SumOf(begin, end - 1)"),
        ("with a client, those that came together are left out",
         "rest_.has_value() ? CopyOf(*rest_) : SumOf(0, 0)", "SumOf(0, 0)")],
    ("server/unlearning.cc", "server", "*Unlearned*"): [
        ("the model without a client begins at the run's first model",
         "if (followed.rounds++ == 0) MACAW_RETURN_IF_ERROR(followed.half->Load(before_));",
         "++followed.rounds;"),
        ("the model without a client begins anew in each round that counts it",
         "if (followed.rounds++ == 0)", "++followed.rounds;"),
        ("rounds without the client are not followed",
         "if (followed.rounds == 0 || parts.Has(client)) continue;",
         "if (client >= ClientId()) continue;")],
    ("server/leave_one_out.cc", "server", "LeftOutCosine.*"): [
        ("the cosine has sums and means on two scales",
         "algorithms::Scale(spec.divisor / channel->weight, direction.view());", "{}"),
        ("the cosine is of what an attack sends beside the update",
         "|| beside(channel.name)) continue;",
         "|| (beside(channel.name) && false)) continue;")],
    ("server/run_ending.cc", "server", "*LeaveOneOutInterrupted*"): [
        ("models without a client that wait for their evaluation are forgotten",
         "checkpoint.owed_contributions = owed_contributions_;", "{}")],
    ("server/run_ending.cc", "server", "*InsideADurableRound*"): [
        ("Ctrl-C drops closed rounds that are not done again yet",
         "engine_.caught_up() ? Carry(engine_.Interrupt()) : SuspendNow();", "Carry(engine_.Interrupt());")],
    ("server/journal/journal.cc", "server", "JournalTest.*:ResumeInside*"): [
        ("a checkpoint of rounds that are done again removes their parts",
         "if (newest < newest_) return absl::OkStatus();", "{}")],
    ("server/model_keeper.cc", "server", "*InsideARound*"): [
        ("a round that is left behind has moved the model",
         "if (!inside_round_) return true;", "if (!schema_.up.empty()) return true;")],
    ("server/run_ending.cc", "server", "Resume.*"): [
        ("an interrupted round's states are current after a resume",
         "StateVersions::Staged::kLeftOut);", "StateVersions::Staged::kIncluded);")],
    ("cli/diff/diff.cc", "cli", "Diff.*"): [
        ("diff looks at the last round first", "parting = InRound(Round(round));",
         "parting = InRound(Round(rounds - round));"),
        ("a tolerance holds for counts, too", "IsCount(name) ? 0 : tolerance", "tolerance")],
    ("cli/bundle/portable.cc", "cli", "Bundles.*:Portable.*"): [
        ("a bundle has keys of the machine that ran it", " || IsOfOneMachine(whole)) continue;", ") continue;")],
    ("cli/bundle/bundle.cc", "cli", "Bundles.*"): [
        ("a bundle's file may have another digest than the list says",
         "if (Sha256Hex(BytesOf(absl::string_view(found->second))) != file.sha256)", "if (file.sha256.empty())")],
    ("cli/simulate/made_again.cc", "cli", "Refusals.*"): [
        ("verify runs on whatever data it is given", "if (here == digest) return absl::OkStatus();",
         "return absl::OkStatus();")],
    ("cli/verify/statements.cc", "cli", "Refusals.*"): [
        ("verify believes the profile that a summary states",
         'if (joined.contains(absl::StrCat("(", recorded_.profile, ")"))) return absl::OkStatus();',
         "return absl::OkStatus();")],
    ("cli/verify/verify.cc", "cli", "Refusals.*"): [
        ("verify takes another file for the one that the run had", "if (found != had.end()) return",
         "if (!had.empty()) return")],
    ("cli/verify/verify.cc", "system", "Verified.*"): [
        ("verify ignores the numeric profile", "done.same_profile = first.profile == second.profile;",
         "done.same_profile = true;")],
}


def room_of(binary):
    """The folder in tests/ whose CMakeLists.txt has the test binary; "" if none has."""
    return next((file.parent.name for file in sorted(ROOT.glob("tests/*/CMakeLists.txt"))
                 if re.search(rf"macaw_test\(\s*{binary}\s", file.read_text())), "")


ROOMS = sorted({room_of(binary) for _, binary, _ in MUTANTS})
OPTIONS = ["-DMACAW_TORCH=OFF", "-DMACAW_BENCH=OFF", f"-DMACAW_TESTS_OF={';'.join(ROOMS)}"]


class Copy:
    """A copy of the working tree with a build folder of its own."""

    def __init__(self, folder, jobs):
        self.folder, self.build_folder, self.jobs = folder, folder / "build", jobs
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            source, copy = ROOT / name, folder / name
            if not source.is_file() or copy.is_file() and copy.read_bytes() == source.read_bytes():
                continue  # what has not changed is not built again
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)
        self.must(["cmake", "--preset", "release", "-B", self.build_folder, *OPTIONS])

    def must(self, command):
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{done.stdout[-4000:]}{done.stderr[-4000:]}\nerror: {' '.join(map(str, command))}")

    def build(self, *binaries):
        return ["cmake", "--build", self.build_folder, "-j", str(self.jobs),
                "--target", *(binary + "_test" for binary in binaries)]

    def first_failure(self, binary, tests):
        """The name of the first test that fails, or else nothing."""
        command = [self.build_folder / "tests" / f"{binary}_test", f"--gtest_filter={tests}",
                   "--gtest_fail_fast"]
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            try:
                failed = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, cwd=self.folder,
                                        timeout=PATIENCE).returncode != 0
            except subprocess.TimeoutExpired:
                failed = True
            output.seek(0)
            seen = re.findall(r"^\[ +(RUN|FAILED) +\] ([\w/.]+)", output.read(), re.MULTILINE)
        # A test that crashed or hung was the last one to begin.
        names = [name for word, name in seen if word == "FAILED"] + [name for _, name in seen[-1:]]
        return (names or ["its start"])[0] if failed else ""

    def outcome_of(self, file, old, new, binary, tests):
        """Whether the tests notice it, and the test that does or what went wrong."""
        path = self.folder / file
        text = path.read_text()
        if text.count(old) != 1:
            return False, f"ERROR: {text.count(old)} places have its text"
        path.write_text(text.replace(old, new.replace("@", old)))
        try:
            built = subprocess.run(self.build(binary), cwd=self.folder, capture_output=True, text=True)
            if built.returncode != 0:
                return False, f"ERROR: it does not build\n{built.stdout[-2000:]}"
            name = self.first_failure(binary, tests)
            return bool(name), name or "SURVIVES"
        finally:
            path.write_text(text)


def lost(mutants):
    """Those whose text is not at exactly one place of its source, or whose test is nowhere, each with the reason."""
    for trap, file, old, _, binary, _ in mutants:
        count = (ROOT / file).read_text().count(old)
        if count != 1:
            yield f"{file}: {count} places have the text of the mutant '{trap}'"
        if not room_of(binary):
            yield f"{file}: no room of tests/ has the test of the mutant '{trap}', {binary}_test"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", type=pathlib.Path, help="folder for the copy and its build; it stays")
    parser.add_argument("--only", default="", metavar="PATTERN")
    parser.add_argument("--places", action="store_true", help="only look for the mutants' places")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="of the compiler at once")
    arguments = parser.parse_args()
    chosen = [(trap, file, old, new, binary, tests)
              for (file, binary, tests), traps in MUTANTS.items() for trap, old, new in traps
              if re.search(arguments.only, f"{trap} {file} {binary} {tests}", re.IGNORECASE)]
    if arguments.places:
        missing = list(lost(chosen))
        print("\n".join(missing) or f"{len(chosen)} mutants find their places")
        sys.exit(len(missing) > 0)
    with tempfile.TemporaryDirectory(prefix="macaw-mutants-") as temporary:
        scratch = (arguments.scratch or pathlib.Path(temporary)).resolve()
        if scratch == ROOT:
            sys.exit("error: --scratch is the working tree itself, which mutants must not touch")
        copy = Copy(scratch, arguments.jobs)
        suites = sorted({(binary, tests) for *_, binary, tests in chosen})
        copy.must(copy.build(*sorted({binary for binary, _ in suites})))
        for binary, tests in suites:
            if name := copy.first_failure(binary, tests):
                sys.exit(f"error: {name} fails without any mutant")
        missed = 0
        for trap, *mutant in chosen:
            noticed, what = copy.outcome_of(*mutant)
            missed += not noticed
            print(f"{trap:<60} {mutant[0]:<32} {what}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} mutants are noticed")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
