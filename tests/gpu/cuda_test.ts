/** The CUDA library on bloom-nano: what the CPU library must show, on a card. `deno task test:gpu`. */
import { registerNativeTests } from "../native_checks.ts";
import { hasCard } from "./card.ts";

registerNativeTests("cuda", { ignore: !hasCard() });
