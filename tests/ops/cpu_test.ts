/** Every op on the CPU library: against the reference backend, rows by bits, thread counts by bits. */
import { registerOpTests } from "./register.ts";

registerOpTests("cpu");
