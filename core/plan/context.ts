/**
 * The context of a model where nobody says how large it is to be.
 * @module
 */
import { PlanError } from "../errors.ts";
import type { DeviceInfo } from "../program/backend.ts";
import { formatBytes } from "./bytes.ts";

export interface ContextChoice {
  readonly n_ctx: number;
  /** Why it is this long, to be shown. */
  readonly reason: string;
}

/** Contexts that were not asked for are multiples of this. */
const STEP = 256;
/** And leave this share of the free memory to others. */
const SPARE = 0.1;

/**
 * What the model was trained for where that fits the device, else the largest context that does.
 * @param plan Plans a context; throws {@link PlanError} `plan.does_not_fit` where the device is too small for it.
 */
export function chooseContext(
  n_ctx_train: number,
  device: DeviceInfo,
  plan: (n_ctx: number, device: DeviceInfo) => unknown,
): ContextChoice {
  const room = { ...device, free_bytes: Math.floor(device.free_bytes * (1 - SPARE)) };
  const fits = (n_ctx: number) => {
    try {
      plan(n_ctx, room);
      return true;
    } catch (error) {
      if (error instanceof PlanError && error.code === "plan.does_not_fit") return false;
      throw error;
    }
  };
  if (n_ctx_train <= STEP || fits(n_ctx_train)) {
    return { n_ctx: n_ctx_train, reason: "what the model was trained for" };
  }
  let low = 1, high = Math.ceil(n_ctx_train / STEP); // `high` does not fit
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (fits(middle * STEP)) low = middle;
    else high = middle;
  }
  return {
    n_ctx: low * STEP,
    reason: `of the ${n_ctx_train} that the model was trained for, what fits ${
      formatBytes(room.free_bytes)
    } of memory on ${device.name} beside the weights; --ctx-size chooses`,
  };
}
