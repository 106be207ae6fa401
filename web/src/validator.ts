/** Validate for the form without `eval`, which the page's content security policy forbids. */
import { Validator } from "@cfworker/json-schema";
import type { CustomValidator, ErrorTransformer, FormContextType, RJSFSchema, StrictRJSFSchema, ValidationData, ValidatorType } from "@rjsf/utils";

class InterpretingValidator<T = unknown, S extends StrictRJSFSchema = RJSFSchema, F extends FormContextType = Record<string, unknown>>
  implements ValidatorType<T, S, F>
{
  /** The engine validates before each call, so that the form only shows its problems. */
  validateFormData(_data: T | undefined, _schema: S, _custom?: CustomValidator<T, S, F>, _transform?: ErrorTransformer<T, S, F>): ValidationData<T> {
    return { errors: [], errorSchema: {} };
  }

  /** The form asks which choice of a union fits its data. */
  isValid(schema: S, data: T | undefined, root: S): boolean {
    try {
      const whole = { ...root, ...schema, $defs: { ...(root.$defs ?? {}), ...(schema.$defs ?? {}) } };
      return new Validator(whole as never, "2020-12", true).validate(data).valid;
    } catch {
      return false;
    }
  }

  rawValidation<Result = unknown>(): { errors?: Result[] } {
    return { errors: [] };
  }

  toErrorList() {
    return [];
  }
}

export const validator = new InterpretingValidator<never>() as unknown as ValidatorType;
