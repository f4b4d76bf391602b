/* BBR, version 1 (Cardwell et al., 2016; Linux tcp_bbr.c for the order of things). Losses are not looked at. */
#include "pcmh.h"
#include "pcm_arith.h"
#include "bbr.h"

enum mode { STARTUP, DRAIN, PROBE_BW, PROBE_RTT };

static inline pcm_uint bandwidth(ALGO_CTX_ARGS)
{
	pcm_uint most = 0;

	for (int i = 0; i < BW_ROUNDS; i++)
		most = MAX(most, get_arr_uint(BW, (get_var_uint(ROUND) - (pcm_uint)i) & (BW_LEN - 1)));
	return most;
}

/* Bytes that the bandwidth brings in a time: a tick is a tenth of a microsecond. */
static inline pcm_uint bytes_in(ALGO_CTX_ARGS, pcm_uint time) { return bandwidth(ALGO_CTX_PASS) * time * 10 / MICROSECOND / 8; }

/* So many times the bytes that fit on the path, in whole packets. */
static inline pcm_uint inflight(ALGO_CTX_ARGS, pcm_frac gain)
{
	return frac_scale(bytes_in(ALGO_CTX_PASS, get_var_uint(MIN_RTT)), gain) + QUANTUM;
}

static inline void enter(ALGO_CTX_ARGS, enum mode mode)
{
	set_var_uint(MODE, mode);
	set_var_uint(PHASE, mode == PROBE_BW ? 2 : 0); /* not with more than the bandwidth */
	set_var_uint(T_PHASE, get_signal(NOW));
}

/*
 * Acknowledgements that come together, after a time without: the window must have room for what is sent meanwhile, or the path runs
 * empty and the bandwidth seems to fall (Linux bbr_update_ack_aggregation).
 */
static inline void surplus(ALGO_CTX_ARGS, pcm_uint acked)
{
	pcm_uint i = get_var_uint(ROUND) / EXTRA_ROUNDS & 1, now = get_signal(NOW);
	pcm_uint expected = bytes_in(ALGO_CTX_PASS, now - get_var_uint(T_EPOCH));

	if (get_signal(ACKED_BYTES) - acked - get_var_uint(EPOCH_FROM) <= expected) {
		set_var_uint(T_EPOCH, now);
		set_var_uint(EPOCH_FROM, get_signal(ACKED_BYTES) - acked);
		expected = 0;
	}
	pcm_uint ahead = get_signal(ACKED_BYTES) - get_var_uint(EPOCH_FROM);
	if (ahead > expected)
		set_arr_uint(EXTRA, i, MAX(get_arr_uint(EXTRA, i), MIN(ahead - expected, get_control(CWND))));
}

static inline void begin_round(ALGO_CTX_ARGS)
{
	set_var_uint(T_ROUND, get_signal(NOW));
	set_var_uint(ROUND_FROM, get_signal(ACKED_BYTES));
	set_var_uint(ROUND_TO, get_signal(ACKED_BYTES) + get_signal(IN_FLIGHT));
}

static inline void round_ended(ALGO_CTX_ARGS, pcm_uint elapsed)
{
	pcm_uint acked = get_signal(ACKED_BYTES) - get_var_uint(ROUND_FROM), most;

	begin_round(ALGO_CTX_PASS);
	if (get_var_uint(MODE) == PROBE_RTT)
		return; /* that little was sent says nothing of the bandwidth */
	set_var_uint(ROUND, get_var_uint(ROUND) + 1);
	if (get_var_uint(ROUND) % EXTRA_ROUNDS == 0)
		set_arr_uint(EXTRA, get_var_uint(ROUND) / EXTRA_ROUNDS & 1, 0);
	set_arr_uint(BW, get_var_uint(ROUND) & (BW_LEN - 1), acked * 8 * MICROSECOND / (10 * elapsed));
	if (get_var_uint(MODE) != STARTUP)
		return;
	most = bandwidth(ALGO_CTX_PASS);
	if (most >= frac_scale(get_var_uint(FULL_BW), GROWTH)) {
		set_var_uint(FULL_BW, most);
		set_var_uint(FULL_COUNT, 0);
		return;
	}
	set_var_uint(FULL_COUNT, get_var_uint(FULL_COUNT) + 1);
	if (get_var_uint(FULL_COUNT) >= FULL_ROUNDS)
		enter(ALGO_CTX_PASS, DRAIN);
}

static inline void least_delay(ALGO_CTX_ARGS, pcm_uint rtt)
{
	pcm_uint now = get_signal(NOW), mode = get_var_uint(MODE);
	bool expired = now - get_var_uint(T_MIN_RTT) > MIN_RTT_WINDOW;

	if (!get_var_uint(MIN_RTT) || rtt <= get_var_uint(MIN_RTT) || (expired && mode == PROBE_RTT)) {
		set_var_uint(MIN_RTT, rtt);
		set_var_uint(T_MIN_RTT, now);
	} else if (expired) { /* with an almost empty path for a while the next samples say what it is now */
		enter(ALGO_CTX_PASS, PROBE_RTT);
	}
}

/* A round trip, and what it is for: more than the bandwidth has filled the path, or less has emptied it. */
static inline bool phase_over(ALGO_CTX_ARGS, pcm_uint in_phase)
{
	pcm_uint in_flight = get_signal(IN_FLIGHT);
	bool full_length = in_phase >= get_var_uint(MIN_RTT);

	if (get_var_uint(PHASE) == 0 && in_flight) /* 0: the platform does not tell */
		return full_length && in_flight >= inflight(ALGO_CTX_PASS, UP_GAIN);
	if (get_var_uint(PHASE) == 1 && in_flight)
		return full_length || in_flight <= inflight(ALGO_CTX_PASS, FRAC(1));
	return full_length;
}

static inline void next_mode(ALGO_CTX_ARGS)
{
	pcm_uint in_phase = get_signal(NOW) - get_var_uint(T_PHASE);

	switch (get_var_uint(MODE)) {
	case DRAIN:
		if (get_signal(IN_FLIGHT) <= inflight(ALGO_CTX_PASS, FRAC(1)))
			enter(ALGO_CTX_PASS, PROBE_BW);
		break;
	case PROBE_BW:
		if (phase_over(ALGO_CTX_PASS, in_phase)) {
			set_var_uint(PHASE, (get_var_uint(PHASE) + 1) & 7);
			set_var_uint(T_PHASE, get_signal(NOW));
		}
		break;
	case PROBE_RTT:
		if (in_phase >= PROBE_RTT_TIME) {
			enter(ALGO_CTX_PASS, get_var_uint(FULL_COUNT) >= FULL_ROUNDS ? PROBE_BW : STARTUP);
			begin_round(ALGO_CTX_PASS);
		}
		break;
	}
}

static inline pcm_frac gain(ALGO_CTX_ARGS)
{
	switch (get_var_uint(MODE)) {
	case STARTUP:
		return STARTUP_GAIN;
	case DRAIN:
		return DRAIN_GAIN;
	case PROBE_BW:
		return get_var_uint(PHASE) == 0 ? UP_GAIN : get_var_uint(PHASE) == 1 ? DOWN_GAIN : FRAC(1);
	}
	return FRAC(1);
}

int algorithm_main()
{
	pcm_uint elapsed = get_signal(NOW) - get_var_uint(T_ROUND), rtt = get_signal(RTT), cwnd;

	if (rtt && rtt != (pcm_uint)-1)
		least_delay(ALGO_CTX_PASS, rtt);
	if (!get_var_uint(MIN_RTT))
		return PCM_SUCCESS; /* nothing is known yet */
	if (elapsed && elapsed >= get_var_uint(MIN_RTT) && get_signal(ACKED_BYTES) >= get_var_uint(ROUND_TO))
		round_ended(ALGO_CTX_PASS, elapsed);
	if (!bandwidth(ALGO_CTX_PASS))
		return PCM_SUCCESS;
	surplus(ALGO_CTX_PASS, get_signal(ACKED_BYTES) - get_var_uint(PREV_ACKED));
	set_var_uint(PREV_ACKED, get_signal(ACKED_BYTES));
	next_mode(ALGO_CTX_PASS);
	cwnd = inflight(ALGO_CTX_PASS, get_var_uint(MODE) == STARTUP || get_var_uint(MODE) == DRAIN ? STARTUP_GAIN : FRAC(2));
	if (get_var_uint(MODE) != STARTUP)
		cwnd += MIN(MAX(get_arr_uint(EXTRA, 0), get_arr_uint(EXTRA, 1)), bytes_in(ALGO_CTX_PASS, EXTRA_TIME));
	if (get_var_uint(MODE) == PROBE_RTT)
		cwnd = 0;
	set_control(CWND, MAX(cwnd, (pcm_uint)MIN_PACKETS * MSS));
	set_control(RATE, MAX(MIN(frac_scale(bandwidth(ALGO_CTX_PASS), gain(ALGO_CTX_PASS)), (pcm_uint)LINE), (pcm_uint)MIN_RATE));
	return PCM_SUCCESS;
}
