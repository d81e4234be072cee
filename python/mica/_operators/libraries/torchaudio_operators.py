"""The operators of torchaudio's library: recursive filters, the transducer's loss, forced alignment."""

import itertools

import mica
from mica.library import Library

_BLOCK = 128


def _impulse_response(coefficients, length):
    """The first values of filters (a row each: a_p ... a_1) answering one impulse."""
    channels, order = coefficients.shape
    response = coefficients.new_zeros(channels, order + length)
    response[:, order] = 1
    for i in range(1, length):
        response[:, order + i] = -(response[:, i : order + i] * coefficients).sum(1)
    return response[:, order:]


def _recur(signal, coefficients, state):
    """y[n] = x[n] - sum a_k y[n - k] over the last dimension of (batch, channel, time), block by block.

    Within a block the answer is the product of the signal with the filter's impulse response. The state is what came
    before, (batch, channel, order); everything is float64.
    """
    channels, order = coefficients.shape
    length = min(_BLOCK, max(signal.size(2), 1))
    response = _impulse_response(coefficients, length)
    lag = mica.arange(length)[:, None] - mica.arange(length)
    answers = (response[:, lag.clamp(min=0)] * (lag >= 0)).transpose(1, 2).contiguous()
    # What the state adds to the first values: row k of the state reaches value i with a_{p + i - k}.
    reach = coefficients.new_zeros(channels, order, order)
    for i in range(order):
        reach[:, i:, i] = coefficients[:, : order - i]
    blocks = []
    for part in signal.split(length, 2):
        part, count = part.clone(), part.size(2)
        fed = min(order, count)
        part[:, :, :fed] -= mica.einsum("nck,cki->nci", state, reach)[:, :, :fed]
        made = mica.einsum("nct,ctu->ncu", part, answers[:, :count, :count])
        state = mica.cat([state, made], 2)[:, :, -order:] if order else state
        blocks.append(made)
    return mica.cat(blocks, 2) if blocks else signal


def _lfilter_core_loop(input_signal_windows, a_coeff_flipped, padded_output_waveform):
    order = a_coeff_flipped.size(1) - 1
    with mica.no_grad():
        made = _recur(
            input_signal_windows.double(),
            a_coeff_flipped[:, :order].double(),
            padded_output_waveform[:, :, :order].double(),
        )
        padded_output_waveform[:, :, order:] = made


def _overdrive_core_loop(waveform, temp, last_in, last_out, output_waveform):
    with mica.no_grad():
        steps = mica.cat([last_in[:, None], temp], 1).double().diff(dim=1)
        decay = mica.full((1, 1), -0.995, dtype=mica.float64)
        made = _recur(steps[:, None], decay, last_out[:, None, None].double())[:, 0]
        output_waveform.copy_(waveform * 0.5 + made * 0.75)


def _transducer_costs(log_probs, targets, logit_lengths, target_lengths, blank):
    """Costs of the paths through the lattice, diagonal by diagonal: on one, times and labels add up to its number."""
    batch, times, labels, _ = log_probs.shape
    skip = log_probs[..., blank]
    wanted = targets.long()[:, None, :, None].expand(-1, times, -1, -1)
    emit = log_probs[:, :, : labels - 1].gather(3, wanted)[..., 0]
    infinity = log_probs.new_full((batch, 1), float("-inf"))
    diagonals = [log_probs.new_zeros(batch, 1)]
    first = [0]
    for n in range(1, times + labels - 1):
        low, high = max(0, n - times + 1), min(n, labels - 1)  # the labels on this diagonal
        before, start = diagonals[-1], first[-1]
        last = start + before.size(1) - 1
        label = mica.arange(low, high + 1)
        stay = label[label <= min(high, last)]
        waited = before[:, stay - start] + skip[:, n - 1 - stay, stay]
        if high > last:
            waited = mica.cat([waited, infinity], 1)
        step = label[label >= max(1, start + 1)]
        said = before[:, step - 1 - start] + emit[:, n - step, step - 1]
        if low < max(1, start + 1):
            said = mica.cat([infinity, said], 1)
        diagonals.append(mica.logaddexp(waited, said))
        first.append(low)
    ends = []
    for i, (t, u) in enumerate(zip(logit_lengths.tolist(), target_lengths.tolist(), strict=True)):
        n = t - 1 + u
        ends.append(-(diagonals[n][i, u - first[n]] + skip[i, t - 1, u]))
    return mica.stack(ends)


def _rnnt_loss_forward(logits, targets, logit_lengths, target_lengths, blank, clamp, fused_log_softmax=True):
    if logits.dim() != 4:
        raise RuntimeError("logits must be 4-D (batch, time, target, class)")
    if logits.size(2) != targets.size(1) + 1:
        raise RuntimeError("output length mismatch: logits.shape[2] must be targets.shape[1] + 1")
    blank = blank % logits.size(3)
    with mica.enable_grad():
        given = logits.detach().requires_grad_()
        work = given.float() if given.dtype in (mica.float16, mica.bfloat16) else given
        log_probs = work.log_softmax(-1) if fused_log_softmax else work
        costs = _transducer_costs(log_probs, targets, logit_lengths, target_lengths, blank)
        (gradient,) = mica.autograd.grad(costs.sum(), given)
    if clamp > 0:
        gradient = gradient.clamp(-clamp, clamp)
    return costs.detach(), gradient


def _forced_align(log_probs, targets, input_lengths, target_lengths, blank):
    if log_probs.dim() != 3 or targets.dim() != 2:
        raise RuntimeError("log_probs must be a 3-D and targets a 2-D tensor")
    if log_probs.size(0) != 1:
        raise RuntimeError("The batch dimension for log_probs must be 1 at the current version.")
    labels, scores = targets[0].tolist(), log_probs[0].detach()
    times, count = scores.size(0), len(labels)
    repeats = sum(a == b for a, b in itertools.pairwise(labels))
    if times < count + repeats:
        raise RuntimeError(
            f"targets length is too long for CTC. Found log_probs length: {times}, targets length: {count}, "
            f"and number of repeats: {repeats}"
        )
    states = mica.full((2 * count + 1,), blank, dtype=mica.int64)
    states[1::2] = targets[0].long()
    number = len(states)
    can_skip = mica.zeros(number, dtype=mica.bool)
    can_skip[3::2] = states[3::2] != states[1:-2:2]
    values = scores.double()[:, states]
    best = mica.full((number,), float("-inf"), dtype=mica.float64)
    best[:2] = values[0, :2]
    came = []
    lost = mica.full((2,), float("-inf"), dtype=mica.float64)
    for t in range(1, times):
        one = mica.cat([lost[:1], best[:-1]])
        two = mica.where(can_skip, mica.cat([lost, best[:-2]])[:number], float("-inf"))
        from_two, from_one = (two > one) & (two > best), (one > best) & (one > two)
        came.append(mica.where(from_two, 2, mica.where(from_one, 1, 0)))
        best = mica.where(from_two, two, mica.where(from_one, one, best)) + values[t]
    at = number - 1 if number < 2 or best[number - 1] > best[number - 2] else number - 2
    path = [at]
    for steps in reversed(came):
        at -= int(steps[at])
        path.append(at)
    paths = states[mica.tensor(path[::-1])][None].to(targets.dtype)
    return paths, log_probs


def _register():
    kept = []

    def define(namespace, schema, function):
        library = Library(namespace, "FRAGMENT")
        library.impl(library.define(schema), function, "CompositeImplicitAutograd")
        kept.append(library)

    define("_torchaudio", "cuda_version() -> int?", lambda: None)
    define("_torchaudio", "is_align_available() -> bool", lambda: True)
    define(
        "torchaudio",
        "_lfilter_core_loop(Tensor input_signal_windows, Tensor a_coeff_flipped, Tensor(a!) padded_output_waveform) -> ()",
        _lfilter_core_loop,
    )
    define(
        "torchaudio",
        "_overdrive_core_loop(Tensor waveform, Tensor temp, Tensor last_in, Tensor last_out, Tensor(a!) output_waveform) -> ()",
        _overdrive_core_loop,
    )
    define(
        "torchaudio",
        "rnnt_loss_forward(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, int blank, "
        "float clamp, bool fused_log_softmax=True) -> (Tensor, Tensor?)",
        _rnnt_loss_forward,
    )
    define(
        "torchaudio",
        "forced_align(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank) -> (Tensor, Tensor)",
        _forced_align,
    )
    return kept


_libraries = _register()
