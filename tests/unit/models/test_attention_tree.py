"""Tree attention against a dense mask that is written pair by pair, in float64."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.models.attention import AttentionCall, TreeLayout
from strop.models.attention.flash_cpu import flash_can_attend
from strop.models.attention.flash_plan import InnerRectangle, make_flash_plan
from strop.models.attention.nodes import build_nodes
from strop.records import PackedBatch, Segment

HEAD_SIZE = 8


@st.composite
def trees(draw: st.DrawFn, max_depth: int = 3) -> list[Segment]:
    """Draws a forest in depth-first order, with empty and single-token segments."""
    segments: list[Segment] = []

    def add(parent: int | None, depth: int, start: int) -> int:
        index = len(segments)
        stop = start + draw(st.sampled_from([0, 1, 1, 2, 3, 7, 17]))
        segments.append(Segment(start, stop, parent, stop))
        cursor = stop
        if depth < max_depth:
            for _ in range(draw(st.integers(0, 3 - depth // 2))):
                cursor = add(index, depth + 1, cursor)
        segments[index] = Segment(start, stop, parent, cursor)
        return cursor

    cursor = 0
    for _ in range(draw(st.integers(1, 2))):
        cursor = add(None, 0, cursor)
    return segments


def oracle_ancestors(segments: list[Segment], index: int) -> list[int]:
    parent = segments[index].parent
    return [] if parent is None else [*oracle_ancestors(segments, parent), parent]


def oracle_visible(segments: list[Segment], window: int | None) -> torch.Tensor:
    """[T, T] bool, true where the row's token sees the column's, decided for each pair on its own."""
    owner = [index for index, segment in enumerate(segments) for _ in range(segment.num_tokens)]
    ordinals = []
    for token, index in enumerate(owner):
        before = sum(segments[ancestor].num_tokens for ancestor in oracle_ancestors(segments, index))
        ordinals.append(before + token - segments[index].start)
    visible = torch.zeros(len(owner), len(owner), dtype=torch.bool)
    for query, query_segment in enumerate(owner):
        for key, key_segment in enumerate(owner):
            own = query_segment == key_segment and key <= query
            inside = window is None or ordinals[query] - ordinals[key] < window
            visible[query, key] = inside and (own or key_segment in oracle_ancestors(segments, query_segment))
    return visible


def oracle_attention(call: AttentionCall, segments: list[Segment]) -> torch.Tensor:
    """[1, T, H, D] with every score written out."""
    group = call.query.shape[1] // call.key.shape[1]
    keys, values = (x.repeat_interleave(group, dim=1) for x in (call.key, call.value))
    scores = call.query @ keys.transpose(2, 3) * call.scaling
    if call.softcap is not None:
        scores = call.softcap * torch.tanh(scores / call.softcap)
    exponentials = torch.exp(scores) * oracle_visible(segments, call.sliding_window)
    total = exponentials.sum(-1, keepdim=True)
    if call.sinks is not None:
        total = total + torch.exp(call.sinks).view(1, -1, 1, 1)
    return (exponentials / total @ values).transpose(1, 2)


def make_call(num_tokens: int, key_heads: int = 2, group: int = 2, seed: int = 0, **options: object) -> AttentionCall:
    generator = torch.Generator().manual_seed(seed)

    def heads_of(count: int) -> torch.Tensor:
        # Models hand over transposed views, so the strides here are theirs.
        flat = torch.randn(1, num_tokens, count, HEAD_SIZE, generator=generator, dtype=torch.float64)
        return flat.transpose(1, 2).requires_grad_()

    query, key, value = heads_of(key_heads * group), heads_of(key_heads), heads_of(key_heads)
    return AttentionCall(0, query, key, value, scaling=0.3, **options)  # type: ignore[arg-type]


def output_and_gradients(output: torch.Tensor, call: AttentionCall) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    weights = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output.dtype)
    inputs = [call.query, call.key, call.value, *([] if call.sinks is None else [call.sinks])]
    return [output, *torch.autograd.grad((output * weights).sum(), inputs)]


def assert_equals_oracle(segments: list[Segment], call: AttentionCall) -> None:
    expected = output_and_gradients(oracle_attention(call, segments), call)
    layout = TreeLayout(segments)
    for attend in (layout.attend, layout.attend_portably):
        for got, want in zip(output_and_gradients(attend(call), call), expected, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-11)


HEADS = st.sampled_from([(1, 1), (1, 3), (2, 1), (2, 2), (3, 3)])
SETTINGS = settings(max_examples=40, deadline=None)


@SETTINGS
@given(trees(), HEADS, st.integers(0, 9))
def test_full_attention_equals_the_dense_mask(segments: list[Segment], heads: tuple[int, int], seed: int) -> None:
    if segments[-1].stop:
        assert_equals_oracle(segments, make_call(segments[-1].stop, *heads, seed=seed))


@SETTINGS
@given(trees(max_depth=2), HEADS, st.integers(1, 30))
def test_windows_count_ordinals_and_not_flat_distance(
    segments: list[Segment], heads: tuple[int, int], window: int
) -> None:
    if segments[-1].stop:
        assert_equals_oracle(segments, make_call(segments[-1].stop, *heads, sliding_window=window))


@SETTINGS
@given(trees(max_depth=2), HEADS, st.sampled_from([None, 3]), st.booleans(), st.booleans())
def test_softcap_and_sinks_join_in_any_combination(
    segments: list[Segment], heads: tuple[int, int], window: int | None, softcap: bool, sinks: bool
) -> None:
    if not segments[-1].stop:
        return
    call = make_call(segments[-1].stop, *heads, sliding_window=window, softcap=0.7 if softcap else None)
    if sinks:
        call = replace(call, sinks=torch.randn(heads[0] * heads[1], dtype=torch.float64).requires_grad_())
    assert_equals_oracle(segments, call)


def family(prompt: int, *completions: int) -> list[Segment]:
    """A prompt and its completions."""
    total = prompt + sum(completions)
    segments = [Segment(0, prompt, None, total)]
    for length in completions:
        start = segments[-1].stop
        segments.append(Segment(start, start + length, 0, start + length))
    return segments


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("lengths", [(9, 40, 40, 40), (5, 40, 33, 31, 64), (3, 1, 2, 16, 5), (30, 21), (64, 17, 90)])
def test_every_way_of_batching_completions_is_exact(lengths: tuple[int, ...], num_threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        assert_equals_oracle(family(*lengths), make_call(sum(lengths), key_heads=3, group=3))
    finally:
        torch.set_num_threads(before)


def test_long_neighbours_of_one_length_are_views_and_short_nodes_are_padded_together() -> None:
    plan = make_flash_plan(build_nodes(family(9, 40, 40, 40, 2, 5, 3, 50)))
    short, views, single = plan.causal
    assert short.gather is not None
    assert short.gather.padding_NL.shape == (4, 9)
    assert (views.start, views.num_nodes, views.length, views.gather) == (9, 3, 40, None)
    assert (single.start, single.num_nodes, single.length, single.gather) == (139, 1, 50, None)
    assert plan.inner == (InnerRectangle(0, 9, 189),)


def test_a_prompt_with_one_completion_is_one_causal_sequence() -> None:
    (node,) = TreeLayout(family(4, 3)).nodes
    assert (node.start, node.stop, node.first_ordinal) == (0, 7, 0)


def test_independent_sequences_do_not_see_each_other() -> None:
    call = make_call(12)
    layout = TreeLayout.from_lengths([5, 0, 7])
    alone = TreeLayout.from_lengths([7])
    late = replace(call, query=call.query[:, :, 5:], key=call.key[:, :, 5:], value=call.value[:, :, 5:])
    torch.testing.assert_close(layout.attend(call)[:, 5:], alone.attend(late))
    assert layout.ordinals().tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision_stays_near_float64(dtype: torch.dtype) -> None:
    segments, call = family(20, 30, 30, 9), make_call(89)
    low = replace(call, **{name: getattr(call, name).to(dtype) for name in ("query", "key", "value")})
    bound = {torch.float32: 1e-5, torch.bfloat16: 3e-2}[dtype]
    want = output_and_gradients(oracle_attention(call, segments), call)
    for attend in (TreeLayout(segments).attend, TreeLayout(segments).attend_portably):
        output = attend(low)
        assert output.dtype == dtype
        for got, expected in zip(output_and_gradients(output, low), want, strict=True):
            assert (got.double() - expected).norm() <= bound * expected.norm()


def test_the_fast_way_is_taken_only_where_it_is_exact() -> None:
    call = make_call(4)
    assert flash_can_attend(call)
    assert not flash_can_attend(replace(call, softcap=1.0))
    assert not flash_can_attend(replace(call, sinks=torch.zeros(4)))
    assert not flash_can_attend(replace(call, value=call.value[..., :4]))
    assert not flash_can_attend(replace(call, query=call.query.half(), key=call.key.half(), value=call.value.half()))


def test_a_layout_that_scored_can_train() -> None:
    segments = family(6, 9, 4)
    layout, call = TreeLayout(segments), make_call(19, sliding_window=5, softcap=0.7)
    plain_call = replace(call, softcap=None)
    with torch.inference_mode():
        scored = [layout.attend(call), layout.attend(plain_call)]
    for used, output in zip((call, plain_call), scored, strict=True):
        torch.testing.assert_close(layout.attend(used), output.clone())
        want = output_and_gradients(oracle_attention(used, segments), used)
        for got, expected in zip(output_and_gradients(layout.attend(used), used), want, strict=True):
            torch.testing.assert_close(got, expected)


def test_values_may_be_narrower_than_keys() -> None:
    segments, call = family(4, 5, 3), make_call(12)
    narrow = replace(call, value=call.value[..., :5])
    torch.testing.assert_close(TreeLayout(segments).attend(narrow), oracle_attention(narrow, segments))


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([Segment(1, 3, None, 3)], "segment 0 must start at token 0"),
        ([Segment(0, 3, None, 3), Segment(4, 5, None, 5)], "segment 1 must start at token 3"),
        ([Segment(0, 3, None, 3), Segment(3, 5, 0, 5)], "subtree_stop of segment 0 must be 5, got 3"),
        (
            [Segment(0, 1, None, 1), Segment(1, 2, None, 2), Segment(2, 3, 0, 3)],
            "segment 2 must follow its parent 0 in depth-first order",
        ),
    ],
)
def test_segments_that_are_no_depth_first_tree_are_refused(segments: list[Segment], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TreeLayout(segments)


def test_a_call_over_other_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="one flat row of 5 tokens, got 1 rows of 4"):
        TreeLayout.from_lengths([5]).attend(make_call(4))
    call = make_call(4)
    with pytest.raises(ValueError, match="use_cache=False"):
        TreeLayout.from_lengths([4]).attend(replace(call, key=torch.cat([call.key, call.key], dim=2)))


def test_ordinals_that_contradict_the_segments_are_refused() -> None:
    batch = PackedBatch(
        token_ids_T=torch.zeros(5, dtype=torch.int64),
        ordinals_T=torch.tensor([0, 1, 2, 3, 2]),
        rope_positions_T=torch.arange(5),
        segments=tuple(family(2, 2, 1)),
        source_index_N=torch.tensor([1]),
        target_ids_N=torch.tensor([1]),
        sample_ids_N=torch.tensor([0]),
        sample_keys=((0, 0),),
    )
    assert TreeLayout.from_batch(batch).num_tokens == 5
    with pytest.raises(ValueError, match="ordinals_T must count"):
        TreeLayout.from_batch(replace(batch, ordinals_T=torch.arange(5)))
