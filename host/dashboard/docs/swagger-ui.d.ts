// The part of Swagger UI that the reference uses; the package has no types.
declare module 'swagger-ui' {
  /** Replaces a component of the given name. */
  type Wrap = (original: unknown, system: unknown) => () => null;

  interface Options {
    url: string;
    domNode: Element;
    deepLinking: boolean;
    defaultModelsExpandDepth: number;
    displayRequestDuration: boolean;
    docExpansion: 'list' | 'full' | 'none';
    persistAuthorization: boolean;
    validatorUrl: null;
    plugins: (() => { wrapComponents: Record<string, Wrap> })[];
    onComplete: () => void;
  }

  interface Reference {
    preauthorizeApiKey(scheme: string, key: string): unknown;
    authActions: { logout(schemes: string[]): unknown };
  }

  export default function show(options: Options): Reference;
}
